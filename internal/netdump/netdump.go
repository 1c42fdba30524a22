// Package netdump reads lists from the kernel that another process's change may
// interrupt, and tells of such changes.
package netdump

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// attempts bounds the dumps of one list. Changes that come one after another
// without a pause interrupt several of them.
const attempts = 100

// Complete calls list, which dumps a table of the kernel, and returns its result.
// It calls list again while a change interrupts the dump, because an interrupted
// dump may lack entries. After too many interruptions it returns
// netlink.ErrDumpInterrupted.
func Complete[T any](list func() (T, error)) (T, error) {
	result, err := list()
	for i := 1; i < attempts && errors.Is(err, netlink.ErrDumpInterrupted); i++ {
		result, err = list()
	}
	return result, err
}

// GlobalAddresses returns the global unicast addresses of this machine by the index of their
// interface, each with the length of its subnet.
func GlobalAddresses() (map[int][]netip.Prefix, error) {
	addresses, err := Complete(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("listing the addresses of this machine: %w", err)
	}
	of := map[int][]netip.Prefix{}
	for _, a := range addresses {
		if address, ok := netip.AddrFromSlice(a.IP); ok && address.Unmap().IsGlobalUnicast() {
			bits, _ := a.Mask.Size()
			of[a.LinkIndex] = append(of[a.LinkIndex], netip.PrefixFrom(address.Unmap(), bits))
		}
	}
	return of, nil
}
