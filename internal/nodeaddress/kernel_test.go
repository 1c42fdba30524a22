package nodeaddress

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/coracle-io/coracle/internal/netnstest"
)

const patience = 3 * time.Minute

// newMachine returns a network namespace with the interface eth0, whose link is up, and
// cor-t, that of a cluster.
func newMachine(t *testing.T) netns.NsHandle {
	t.Helper()
	ns := netnstest.New(t)
	netnstest.Do(t, ns, func() error {
		for name, peer := range map[string]string{"eth0": "peer0", "cor-t": "peer1"} {
			if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: peer}); err != nil {
				return err
			}
			for _, end := range []string{name, peer} {
				link, err := netlink.LinkByName(end)
				if err != nil {
					return err
				}
				if err := netlink.LinkSetUp(link); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return ns
}

// address adds an address to an interface of a namespace, or with remove takes it away.
func address(t *testing.T, ns netns.NsHandle, name, text string, remove bool) {
	t.Helper()
	netnstest.Do(t, ns, func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		a, err := netlink.ParseAddr(text)
		if err != nil {
			return err
		}
		if remove {
			return netlink.AddrDel(link, a)
		}
		return netlink.AddrAdd(link, a)
	})
}

// TestKernel checks what is read of the addresses and default routes of a machine.
func TestKernel(t *testing.T) {
	ns := newMachine(t)
	address(t, ns, "eth0", "192.0.2.2/24", false)
	address(t, ns, "cor-t", "10.244.0.1/24", false)
	netnstest.Do(t, ns, func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		_, elsewhere, err := net.ParseCIDR("198.51.100.0/24")
		if err != nil {
			return err
		}
		for _, r := range []netlink.Route{
			{LinkIndex: link.Attrs().Index, Gw: net.IPv4(192, 0, 2, 9), Priority: 200}, {LinkIndex: link.Attrs().Index, Gw: net.IPv4(192, 0, 2, 1), Priority: 100},
			{LinkIndex: link.Attrs().Index, Gw: net.IPv4(192, 0, 2, 8), Dst: elsewhere},
		} {
			if err := netlink.RouteAdd(&r); err != nil {
				return err
			}
		}
		here, err := Kernel{}.Addresses()
		if err != nil {
			return err
		}
		for _, want := range []Address{on("eth0", "192.0.2.2/24"), passing("cor-t", "10.244.0.1/24"), passing("", "127.0.0.1/8")} {
			if !slices.Contains(here, want) {
				t.Errorf("%+v is not among %+v", want, here)
			}
		}
		routes, err := Kernel{}.DefaultRoutes(true)
		if want := []Route{by("eth0", "192.0.2.1"), by("eth0", "192.0.2.9")}; !slices.Equal(routes, want) {
			t.Errorf("the default routes are %+v, want %+v", routes, want)
		}
		none, err6 := Kernel{}.DefaultRoutes(false)
		if len(none) > 0 {
			t.Errorf("the default routes of IPv6 are %+v", none)
		}
		return errors.Join(err, err6)
	})
}

// TestTheKernelTellsOfAddresses checks that the kernel tells of an address, so that nobody
// waits for the next look.
func TestTheKernelTellsOfAddresses(t *testing.T) {
	ns := newMachine(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var changed <-chan struct{}
	netnstest.Do(t, ns, func() (err error) {
		changed, err = Kernel{}.Watch(ctx)
		return err
	})
	address(t, ns, "eth0", "192.0.2.2/24", false)
	select {
	case <-changed:
	case <-time.After(patience):
		t.Error("the kernel did not tell of an address")
	}
}

// TestAMachineIsRenumbered checks that a node gets the new address of a real interface.
func TestAMachineIsRenumbered(t *testing.T) {
	ns := newMachine(t)
	address(t, ns, "eth0", "192.0.2.2/24", false)
	ctx, cancel := context.WithCancel(t.Context())
	list, ran := NewList("192.0.2.2"), make(chan struct{})
	changed, stop := list.Watch()
	defer stop()
	go func() {
		defer close(ran)
		netnstest.Do(t, ns, func() error { return (&Follower{Machine: Kernel{}, List: list}).Run(ctx) })
	}()
	defer func() {
		cancel()
		<-ran
	}()
	address(t, ns, "eth0", "198.51.100.7/24", false)
	netnstest.Do(t, ns, func() error {
		return netlink.RouteAdd(&netlink.Route{Gw: net.IPv4(198, 51, 100, 1)})
	})
	address(t, ns, "eth0", "192.0.2.2/24", true)
	select {
	case <-changed:
	case <-time.After(patience):
		t.Fatalf("the node has %q after %v", list.Now(), patience)
	}
	if now := list.Now(); !slices.Equal(now, []string{"198.51.100.7"}) {
		t.Errorf("the node has %q", now)
	}
}
