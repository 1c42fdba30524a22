// Package looptest gives tests block devices.
package looptest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Device is a loop device of 1 MiB.
type Device struct {
	Path  string
	image string
	t     *testing.T
}

// New attaches a new device. It skips the test without root, or on a machine
// without loop devices. The caller calls Detach.
func New(t *testing.T) *Device {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	image := filepath.Join(t.TempDir(), "image")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 1<<20)); err != nil {
		t.Fatal(err)
	}
	output, err := exec.CommandContext(t.Context(), "losetup", "--find", "--show", image).Output()
	if err != nil {
		t.Skip("this machine has no loop devices:", err)
	}
	return &Device{Path: strings.TrimSpace(string(output)), image: image, t: t}
}

// Detach detaches the device. Its number is free once nobody has it open.
func (d *Device) Detach() {
	d.t.Helper()
	if output, err := exec.Command("losetup", "--detach", d.Path).CombinedOutput(); err != nil {
		d.t.Errorf("%v: %s", err, output)
	}
}

// Attach attaches a detached device under the same number.
func (d *Device) Attach() error { return exec.Command("losetup", d.Path, d.image).Run() }
