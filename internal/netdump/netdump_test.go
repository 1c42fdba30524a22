package netdump

import (
	"errors"
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"
)

func TestComplete(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		errs  []error // of each call; the last one of all further ones
		calls int
		err   error
	}{
		"complete":          {[]error{nil}, 1, nil},
		"interrupted twice": {[]error{netlink.ErrDumpInterrupted, fmt.Errorf("links: %w", netlink.ErrDumpInterrupted), nil}, 3, nil},
		"failed":            {[]error{netlink.ErrDumpInterrupted, broken, nil}, 2, broken},
		"always":            {[]error{netlink.ErrDumpInterrupted}, attempts, netlink.ErrDumpInterrupted},
	} {
		calls := 0
		got, err := Complete(func() (int, error) {
			calls++
			return calls, c.errs[min(calls, len(c.errs))-1]
		})
		if calls != c.calls || got != c.calls || !errors.Is(err, c.err) {
			t.Errorf("%s: %d calls, result %d, error %v; want %d calls and error %v", name, calls, got, err, c.calls, c.err)
		}
	}
}
