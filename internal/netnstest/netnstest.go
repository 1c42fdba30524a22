// Package netnstest gives tests network namespaces.
package netnstest

import (
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/coracle-io/coracle/internal/nft"
)

// NeedsIPv6 skips a test on a machine whose kernel has no IPv6.
func NeedsIPv6(t testing.TB) {
	t.Helper()
	if !nft.KernelHasIPv6() {
		t.Skip("the kernel has no IPv6")
	}
}

// Do runs f in a network namespace, on a thread of its own that then ends.
func Do(t testing.TB, ns netns.NsHandle, f func() error) {
	t.Helper()
	failed := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := netns.Set(ns); err != nil {
			failed <- err
			return
		}
		failed <- f()
	}()
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
}

// New creates a network namespace with loopback up. It skips a test that does not
// run as root.
func New(t testing.TB) netns.NsHandle {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root for network namespaces")
	}
	made := make(chan netns.NsHandle)
	go func() {
		runtime.LockOSThread()
		ns, err := netns.New()
		if err != nil {
			t.Error(err)
		}
		made <- ns
	}()
	ns := <-made
	t.Cleanup(func() { _ = ns.Close() })
	Do(t, ns, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
	return ns
}
