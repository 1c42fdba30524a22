package pki

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"k8s.io/utils/clock"
)

// Open makes keys that were copied into the directory accessible to their owner
// alone.
func TestOpenRestrictsModes(t *testing.T) {
	dir := t.TempDir()
	d, err := Open(dir, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	for file, mode := range map[string]os.FileMode{"ca.key": 0o644, "sa.key": 0o644, "ca.crt": 0o644} {
		if err := os.Chmod(d.File(file), mode); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Open(dir, clock.RealClock{}); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]os.FileMode{"ca.key": 0o600, "sa.key": 0o600, "ca.crt": 0o644} {
		if info, err := os.Stat(d.File(file)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, %v; want %v", file, info.Mode(), err, want)
		}
	}
}

// A lock of the directory itself, which other users can take, has no effect.
func TestOpenWithDirectoryLockedByOthers(t *testing.T) {
	dir := t.TempDir()
	held, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Close() }()
	if err := syscall.Flock(int(held.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, clock.RealClock{}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, ".lock")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the lock has mode %v, %v", info.Mode(), err)
	}
}
