package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/coracle-io/coracle/internal/netnamespace"
)

// newNamespace makes a network namespace with loopback up, which ends when it is closed.
func newNamespace() (netns.NsHandle, error) {
	type made struct {
		ns  netns.NsHandle
		err error
	}
	result := make(chan made)
	go func() {
		runtime.LockOSThread() // the thread is in the namespace, and ends with this goroutine
		ns, err := netns.New()
		result <- made{ns, err}
	}()
	m := <-result
	if m.err != nil {
		return 0, fmt.Errorf("make a network namespace: %w", m.err)
	}
	err := netnamespace.Do(int(m.ns), func() error {
		loopback, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(loopback)
	})
	if err != nil {
		return 0, errors.Join(err, m.ns.Close())
	}
	return m.ns, nil
}

// namespaceOf returns the network namespace of any process in which an address is that
// of an interface: the namespace of a pod or of a node. The caller closes it.
func namespaceOf(address string) (netns.NsHandle, error) {
	wanted, err := netip.ParseAddr(address)
	if err != nil {
		return 0, err
	}
	paths, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		return 0, err
	}
	seen := map[string]bool{}
	for _, path := range paths {
		inode, err := os.Readlink(path)
		if err != nil || seen[inode] { // the process has ended, or is in a namespace that was looked at
			continue
		}
		ns, err := netns.GetFromPath(path)
		if err != nil {
			continue
		}
		seen[inode] = true
		if has, err := hasAddress(ns, wanted); err != nil || has {
			return ns, err
		}
		_ = ns.Close()
	}
	return 0, fmt.Errorf("no process is in a network namespace with the address %s", address)
}

// hasAddress reports whether an interface of a namespace has an address.
func hasAddress(ns netns.NsHandle, wanted netip.Addr) (has bool, err error) {
	err = netnamespace.Do(int(ns), func() error {
		list, err := net.InterfaceAddrs()
		for _, a := range list {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap() == wanted.Unmap() {
				has = true
			}
		}
		return err
	})
	return has, err
}
