package ipvs

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/netnamespace"
	"github.com/coracle-io/coracle/internal/netnstest"
	"github.com/coracle-io/coracle/internal/nft"
)

// TestInterface makes the interface in a network namespace, changes its addresses, and
// removes it.
func TestInterface(t *testing.T) {
	n := namespace{fd: int(netnstest.New(t))}
	if _, exists, err := n.owner(); exists || err != nil {
		t.Fatalf("at first there is an interface: %v, %v", exists, err)
	}
	if err := n.claim("coracle:first"); errors.Is(err, unix.EOPNOTSUPP) {
		t.Skipf("the kernel has no dummy interfaces: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	if err := n.claim("coracle:second"); err != nil {
		t.Fatal(err)
	}
	if alias, exists, err := n.owner(); alias != "coracle:second" || !exists || err != nil {
		t.Errorf("the alias is %q: %v, %v", alias, exists, err)
	}
	want := addresses("10.96.0.20", "10.96.0.21")
	if nft.KernelHasIPv6() {
		want = append(want, netip.MustParseAddr("fd00:96::20"))
	}
	for range 2 { // what is there may be added and removed again
		if err := errors.Join(n.add(want), n.add(nil)); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.with(func(h *netlink.Handle) error { // as an interface of a pod has one
		lo, err := h.LinkByName("lo")
		if err != nil {
			return err
		}
		address, err := netlink.ParseAddr("169.254.7.7/32")
		if err != nil {
			return err
		}
		return h.AddrAdd(lo, address)
	}); err != nil {
		t.Fatal(err)
	}
	own, virtual, err := n.addresses()
	if err != nil || !slices.Equal(virtual, want) || !slices.Contains(own, netip.MustParseAddr("127.0.0.1")) ||
		slices.Contains(own, want[0]) || slices.ContainsFunc(own, netip.Addr.IsLinkLocalUnicast) {
		t.Errorf("the addresses are %v and those of Services %v, %v", own, virtual, err)
	}
	for range 2 {
		if err := n.remove(want[:1]); err != nil {
			t.Fatal(err)
		}
	}
	if _, virtual, err := n.addresses(); err != nil || !slices.Equal(virtual, want[1:]) {
		t.Errorf("after a removal the addresses of Services are %v, %v", virtual, err)
	}
	if err := errors.Join(n.discard(), n.discard()); err != nil {
		t.Fatal(err)
	}
	if err := n.add(want); err == nil {
		t.Error("an address is added to no interface")
	}
}

func TestKernelSettings(t *testing.T) {
	n := namespace{fd: int(netnstest.New(t))}
	for _, value := range []string{"1", "0", "1"} {
		if err := n.set("ipv4/conf/lo/arp_ignore", value); err != nil {
			t.Fatal(err)
		}
		var raw []byte
		if err := netnamespace.Do(n.fd, func() (err error) {
			raw, err = os.ReadFile("/proc/sys/net/ipv4/conf/lo/arp_ignore")
			return err
		}); err != nil || strings.TrimSpace(string(raw)) != value {
			t.Errorf("the setting is %q, %v, want %s", raw, err, value)
		}
	}
	if err := n.set("ipv4/vs/no_such_setting", "1"); err != nil {
		t.Errorf("a setting that the kernel does not have: %v", err)
	}
}
