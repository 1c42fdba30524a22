package tree

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// deep makes directories within one another, and returns the path of the last.
func deep(t *testing.T, top string, depth int) string {
	t.Helper()
	last := filepath.Join(top, strings.Repeat("d/", depth))
	if err := os.MkdirAll(last, 0o700); err != nil {
		t.Fatal(err)
	}
	return last
}

// only checks that a directory has no entry other than name.
func only(t *testing.T, dir, name string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != name {
			t.Errorf("left is %s", e.Name())
		}
	}
}

// When a removal fails, the directories that it has moved must be within the
// tree, and not beside it, where no user looks for them.
func TestAFailedRemovalLeavesAllWithinTheTree(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	parent, theirs := t.TempDir(), t.TempDir()
	top := filepath.Join(parent, "top")
	point := deep(t, top, 3*maxDepth)
	if err := unix.Mount(theirs, point, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("cannot mount here: %v", err)
	}
	err := Remove(top)
	only(t, parent, "top")
	if err == nil || !strings.Contains(err.Error(), "something is mounted at "+top) {
		t.Errorf("with a mount: %v", err)
	}
	points, readErr := os.ReadFile("/proc/self/mounts")
	if readErr != nil {
		t.Fatal(readErr)
	}
	for line := range strings.Lines(string(points)) { // it may have been moved with what it is in
		if at := strings.Fields(line)[1]; strings.HasPrefix(at, top) {
			if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := Remove(top); err != nil {
		t.Error(err)
	}
	only(t, parent, "")
}

// The reason is the one of the file, not of what was tried next.
func TestTheReasonIsTheFirstOne(t *testing.T) {
	top := filepath.Join(t.TempDir(), "top")
	path := filepath.Join(deep(t, top, 1), "file")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	const immutable = 0x10 // FS_IMMUTABLE_FL
	if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, immutable); err != nil {
		t.Skipf("files cannot be immutable here: %v", err)
	}
	defer func() {
		if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, 0); err != nil {
			t.Error(err)
		}
	}()
	err = Remove(top)
	failed := (*fs.PathError)(nil)
	if !errors.Is(err, fs.ErrPermission) || !errors.As(err, &failed) || failed.Path != path {
		t.Errorf("got %v", err)
	}
}

func TestRemoveTakesWhatIsThere(t *testing.T) {
	parent := t.TempDir()
	kept := filepath.Join(t.TempDir(), "kept")
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(kept, filepath.Join(parent, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(kept), filepath.Join(deep(t, filepath.Join(parent, "tree"), 2), "link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "tree", "nothing"} {
		if err := Remove(filepath.Join(parent, name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	only(t, parent, "")
	if _, err := os.Stat(kept); err != nil {
		t.Error(err)
	}
}
