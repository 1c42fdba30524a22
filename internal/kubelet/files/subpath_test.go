package files

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// A subPath that is missing is made with the permissions of the volume. What is there
// keeps its own. Links are followed as far as they stay in the volume, and nothing is
// made outside of it.
func TestSubPathIsMadeInTheVolume(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := t.TempDir()
	root, outside, target := filepath.Join(dir, "root"), filepath.Join(dir, "outside"), filepath.Join(dir, "pods/target")
	put(t, filepath.Join(root, "dir/file"), "x")
	put(t, filepath.Join(outside, "file"), "hidden")
	for path, link := range map[string]string{"inner": "dir", "absolute": outside, "up": "../outside", "dangling": "missing", "loop": "loop"} {
		if err := os.Symlink(link, filepath.Join(root, path)); err != nil {
			t.Fatal(err)
		}
	}
	for path, mode := range map[string]fs.FileMode{root: fs.ModeSetgid | fs.ModeSticky | 0o775, filepath.Join(root, "dir"): 0o700} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	socket, err := net.Listen("unix", filepath.Join(root, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.Close() }()
	const made = fs.ModeDir | fs.ModeSetgid | fs.ModeSticky | 0o775
	for sub, want := range map[string]struct {
		path string      // in the volume, that is mounted; "": it is refused
		mode fs.FileMode // 0: any
	}{
		"a/b": {"a/b", made}, "a": {"a", made}, "inner/new": {"dir/new", made}, "dir": {"dir", fs.ModeDir | 0o700}, "inner": {"dir", fs.ModeDir | 0o700},
		"dir/file": {"dir/file", 0o600}, "inner/file": {"dir/file", 0o600}, "socket": {"socket", 0},
		"absolute": {}, "absolute/new": {}, "up": {}, "up/new": {}, "../outside/new": {}, "dangling": {}, "dangling/new": {}, "loop": {}, "dir/file/new": {},
	} {
		err := OS{}.BindBeneath(root, sub, target, false)
		if (err == nil) != (want.path != "") {
			t.Errorf("%s: %v", sub, err)
		}
		if err == nil && want.path != "" {
			mounted, err := os.Stat(target)
			source, sourceErr := os.Stat(filepath.Join(root, want.path))
			if err != nil || sourceErr != nil || !os.SameFile(mounted, source) {
				t.Errorf("%s: mounted is %+v (%v), want %+v (%v)", sub, mounted, err, source, sourceErr)
			} else if want.mode != 0 && source.Mode() != want.mode {
				t.Errorf("%s: mode %v, want %v", sub, source.Mode(), want.mode)
			}
		}
		if err := (OS{}).Unmount(target); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(target); err != nil {
			t.Fatal(err)
		}
	}
	if names, err := os.ReadDir(outside); err != nil || len(names) != 1 {
		t.Errorf("outside of the volume are %v (%v)", names, err)
	}
	if _, err := os.Lstat(filepath.Join(root, "missing")); err == nil {
		t.Error("the target of a link that leads nowhere was made")
	}
}
