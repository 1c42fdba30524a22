package oomscore

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestSet writes the adjustment of the own process. What the machine does not
// permit is told apart from other failures, and names what is missing.
func TestSet(t *testing.T) {
	var wrote string
	record := func(name string, data []byte, _ os.FileMode) error {
		wrote = name + "=" + string(data)
		return nil
	}
	if err := set(Node, record); err != nil || wrote != "/proc/self/oom_score_adj=-999" {
		t.Errorf("wrote %q (%v)", wrote, err)
	}
	failing := func(errno syscall.Errno) writeFile {
		return func(name string, _ []byte, _ os.FileMode) error {
			return &fs.PathError{Op: "write", Path: name, Err: errno}
		}
	}
	if err := set(Node, failing(syscall.EACCES)); !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "CAP_SYS_RESOURCE") {
		t.Errorf("without the capability: %v", err)
	}
	if err := set(2000, failing(syscall.EINVAL)); err == nil || errors.Is(err, os.ErrPermission) || strings.Contains(err.Error(), "CAP_SYS_RESOURCE") {
		t.Errorf("an invalid adjustment: %v", err)
	}
}

// TestOf reads the adjustment that this process has, which it may set again.
func TestOf(t *testing.T) {
	own, err := Of(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := Set(own); err != nil {
		t.Errorf("%d again: %v", own, err)
	}
	if _, err := Of(1 << 30); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a process that does not exist: %v", err)
	}
}
