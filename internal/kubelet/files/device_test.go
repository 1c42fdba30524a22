package files

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/coracle-io/coracle/internal/kubelet/files/looptest"
)

// HoldDevice refuses files that are not block devices.
func TestHoldDeviceRefuses(t *testing.T) {
	testFS(t, func(t *testing.T, s fileSystem) {
		s.write(t, "file", "")
		for path, want := range map[string]error{s.path("file"): ErrNotBlockDevice, s.root: ErrNotBlockDevice, s.path("none"): fs.ErrNotExist} {
			if id, held, err := s.HoldDevice(path); !errors.Is(err, want) || held != nil {
				t.Errorf("%s is %q, %v; want %v", path, id, err, want)
			}
		}
	})
	if _, held, err := (OS{}).HoldDevice("/dev/null"); !errors.Is(err, ErrNotBlockDevice) || held != nil {
		t.Errorf("/dev/null: %v", err)
	}
}

// The next disk that gets the number of a disk has another id, and gets the
// number only after the first one is closed.
func TestHoldDevice(t *testing.T) {
	loop := looptest.New(t)
	id, held, err := OS{}.HoldDevice(loop.Path)
	if err != nil {
		loop.Detach()
		t.Fatal(err)
	}
	if again, second, err := (OS{}).HoldDevice(loop.Path); err != nil || again != id || second.Close() != nil {
		t.Errorf("%s is %q and then %q, %v", loop.Path, id, again, err)
	}
	loop.Detach()
	if loop.Attach() == nil {
		t.Errorf("%s was attached again while it was held", loop.Path)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if err := loop.Attach(); err != nil {
		t.Skip("another process has taken the device:", err)
	}
	defer loop.Detach()
	now, held, err := OS{}.HoldDevice(loop.Path)
	if err != nil {
		t.Fatal(err)
	}
	if now == id && strings.Contains(id, "disk") {
		t.Errorf("both disks are %q", id)
	}
	if err := held.Close(); err != nil {
		t.Error(err)
	}
}
