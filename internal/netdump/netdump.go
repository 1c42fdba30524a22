// Package netdump reads lists from the kernel that another process's change may
// interrupt, and tells of such changes.
package netdump

import (
	"errors"

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
