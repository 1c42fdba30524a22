package nft

import (
	"fmt"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/netdump"
)

// Families returns the families of a node with or without IPv6.
func Families(ipv6 bool) []Family {
	if ipv6 {
		return []Family{IPv4, IPv6}
	}
	return []Family{IPv4}
}

// KernelHasIPv6 reports whether the kernel has IPv6.
func KernelHasIPv6() bool {
	_, err := os.Stat("/proc/net/if_inet6")
	return err == nil
}

// ForgetFlows deletes the flows of families that match from the kernel's connection
// table, in the network namespace of a file descriptor; 0 is the namespace of this
// process. It tells how many flows of a family it has deleted, and how long that took;
// nil tells nobody.
func ForgetFlows(netNS int, families []Family, match netlink.CustomConntrackFilter, tell func(f Family, flows uint, took time.Duration)) error {
	handle, err := connectionTable(netNS)
	if err != nil {
		return fmt.Errorf("opening the connection table: %w", err)
	}
	defer handle.Close()
	for _, f := range families {
		began := time.Now()
		flows, err := netdump.Complete(func() (uint, error) {
			return handle.ConntrackDeleteFilters(netlink.ConntrackTable, netlink.InetFamily(f.Inet), match)
		})
		if err != nil {
			return fmt.Errorf("deleting flows of %s: %w", f.Name, err)
		}
		if tell != nil {
			tell(f, flows, time.Since(began))
		}
	}
	return nil
}

func connectionTable(netNS int) (*netlink.Handle, error) {
	if netNS == 0 {
		return netlink.NewHandle(unix.NETLINK_NETFILTER)
	}
	return netlink.NewHandleAt(netns.NsHandle(netNS), unix.NETLINK_NETFILTER)
}
