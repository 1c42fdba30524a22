package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// put writes a file and creates its parent directories.
func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

func TestReadsBelowUntrustedRoot(t *testing.T) {
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	put(t, filepath.Join(dir, "secret"), "hidden")
	put(t, filepath.Join(root, "file"), "0123456789")
	put(t, filepath.Join(root, "deep/file"), "deep")
	put(t, filepath.Join(root, "huge"), "end")
	if err := os.Truncate(filepath.Join(root, "huge"), 1<<40); err != nil {
		t.Fatal(err)
	}
	for path, target := range map[string]string{
		"absolute": filepath.Join(dir, "secret"), "up": "../secret", "inner": "deep/file", "zero": "/dev/zero", "self": "self",
		"out": dir, "magic": "/proc/self/exe",
	} {
		link(t, target, filepath.Join(root, path))
	}
	if err := unix.Mkfifo(filepath.Join(root, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(filepath.Join(root, "device"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))); err != nil && !errors.Is(err, unix.EPERM) {
		t.Fatal(err)
	}
	const limit = 10
	for path, want := range map[string]struct{ read, tail string }{
		"file": {"0123456789", "0123456789"}, "deep/file": {"deep", "deep"}, "deep/../file": {"0123456789", "0123456789"},
		"inner": {"deep", ""}, "huge": {"", strings.Repeat("\x00", limit)},
		"absolute": {}, "up": {}, "zero": {}, "self": {}, "out/secret": {}, "magic": {}, "pipe": {}, "device": {}, ".": {}, "deep": {},
		"../secret": {}, "/etc/passwd": {}, "deep/../../secret": {}, "missing": {},
	} {
		read, readErr := OS{}.ReadBeneath(root, path, limit)
		tail, tailErr := OS{}.TailBeneath(root, path, limit)
		if string(read) != want.read || (readErr == nil) != (want.read != "") {
			t.Errorf("ReadBeneath(%q) = %q, %v", path, read, readErr)
		}
		if string(tail) != want.tail || (tailErr == nil) != (want.tail != "") {
			t.Errorf("TailBeneath(%q) = %q, %v", path, tail, tailErr)
		}
	}
	if _, err := (OS{}).ReadBeneath(root, "huge", limit); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a large file: %v", err)
	}
	if _, err := (OS{}).ReadBeneath(root, "pipe", limit); !errors.Is(err, ErrNotRegular) {
		t.Errorf("a pipe: %v", err)
	}
	if _, err := (OS{}).TailBeneath(root, "missing", limit); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if raw, err := (OS{}).ReadFile(filepath.Join(root, "inner"), limit); err != nil || string(raw) != "deep" {
		t.Errorf("a link of the host's own: %q, %v", raw, err)
	}
	if _, err := (OS{}).ReadFile("/dev/zero", limit); !errors.Is(err, ErrNotRegular) {
		t.Errorf("a device: %v", err)
	}
}

// nest creates a chain of directories whose path is longer than a path may be.
func nest(t *testing.T, root string, depth int) {
	t.Helper()
	dir, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	for range depth {
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Mkdirat(dir, "directory", 0o700); err != nil {
			t.Fatal(err)
		}
		next, openErr := unix.Openat(dir, "directory", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		_ = unix.Close(dir)
		dir, err = next, openErr
	}
	_ = unix.Close(dir)
}

// A tree deeper than the limit of open files can be counted, shared and
// removed.
func TestDeepTree(t *testing.T) {
	const depth = 3000
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	put(t, filepath.Join(root, "file"), "x")
	nest(t, root, depth)
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 256, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &before) }()
	if _, inodes, err := (OS{}).Usage(root); err != nil || inodes != depth+2 {
		t.Errorf("%d files and directories (%v), want %d", inodes, err, depth+2)
	}
	if err := (OS{}).Share(root, os.Getgid(), false, nil); err != nil {
		t.Error(err)
	}
	if err := (OS{}).RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(root); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after its removal: %v", err)
	}
	if err := (OS{}).RemoveAll(root); err != nil {
		t.Errorf("what is not there: %v", err)
	}
}

func TestWideTree(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	for i := range 50 {
		for j := range 60 {
			put(t, filepath.Join(root, strings.Repeat("d", i+1), strings.Repeat("f", j+1)), "x")
		}
	}
	if bytes, inodes, err := (OS{}).Usage(root); err != nil || inodes != 1+50+50*60 || bytes < 50*60 {
		t.Errorf("%d bytes, %d inodes, %v", bytes, inodes, err)
	}
	if err := (OS{}).RemoveAll(root); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(root); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after its removal: %v", err)
	}
}

// The targets of links in a volume are neither shared nor removed.
func TestLinkTargetsAreUnchanged(t *testing.T) {
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	put(t, filepath.Join(dir, "outside/file"), "kept")
	put(t, filepath.Join(root, "file"), "x")
	link(t, filepath.Join(dir, "outside"), filepath.Join(root, "directory"))
	link(t, "../outside/file", filepath.Join(root, "link"))
	if err := (OS{}).Share(root, os.Getgid(), false, nil); err != nil {
		t.Fatal(err)
	}
	mode := func(path string) fs.FileMode {
		info, err := os.Stat(filepath.Join(dir, path))
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode()
	}
	if got := mode("outside/file").Perm(); got != 0o600 {
		t.Errorf("a file outside has mode %v", got)
	}
	if got := mode("root/file").Perm(); got != 0o660 {
		t.Errorf("a file inside has mode %v", got)
	}
	if got := mode("root"); got&fs.ModeSetgid == 0 || got.Perm()&0o770 != 0o770 {
		t.Errorf("the root has mode %v", got)
	}
	if err := (OS{}).RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	if raw, err := os.ReadFile(filepath.Join(dir, "outside/file")); err != nil || string(raw) != "kept" {
		t.Errorf("a file outside: %q, %v", raw, err)
	}
}

// A volume counts as shared if its root is, so that the root is the last to change.
func TestRootIsSharedLast(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	put(t, filepath.Join(root, "a/b/file"), "x")
	isShared := func() bool {
		t.Helper()
		yes, err := OS{}.Shared(root, os.Getgid(), false)
		if err != nil {
			t.Fatal(err)
		}
		return yes
	}
	if err := shareTree(root, os.Getgid(), false, 1, nil); err == nil || isShared() {
		t.Errorf("after an error (%v) it is shared: %t", err, isShared())
	}
	if err := (OS{}).Share(root, os.Getgid(), false, nil); err != nil || !isShared() {
		t.Errorf("at the end (%v) it is shared: %t", err, isShared())
	}
}

// A pod may not need that the files belong to its group where they cannot.
func TestFilesThatCannotBeShared(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	root := filepath.Join(t.TempDir(), "root")
	put(t, filepath.Join(root, "file"), "x")
	link(t, "file", filepath.Join(root, "link"))
	visited := 0
	if err := (OS{}).Share(root, 12345, false, func() { visited++ }); err != nil || visited != 3 {
		t.Fatalf("%d of 3 files were visited: %v", visited, err)
	}
	if gid, err := (OS{}).Group(root); err != nil || gid != 12345 {
		t.Errorf("the root has group %d (%v)", gid, err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(root, "link"), &st); err != nil || st.Gid != 12345 {
		t.Errorf("the link has group %d (%v)", st.Gid, err)
	}
	if err := unix.Mount(root, root, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(root, unix.MNT_DETACH) }()
	if err := unix.Mount("", root, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if err := (OS{}).Share(root, 54321, false, nil); err != nil {
		t.Errorf("a volume that is read-only: %v", err)
	}
}

// RemoveAll does not remove what is mounted in a tree.
func TestMountsAreNotEntered(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := t.TempDir()
	root, outside := filepath.Join(dir, "root"), filepath.Join(dir, "outside")
	put(t, filepath.Join(outside, "file"), "kept")
	put(t, filepath.Join(root, "file"), "x")
	target := filepath.Join(root, "mount")
	if err := os.Mkdir(target, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := (OS{}).Mount(outside, target, "", []string{"bind"}); err != nil {
		t.Fatal(err)
	}
	err := OS{}.RemoveAll(root)
	if err == nil {
		t.Error("a mount was removed with the tree that it is in")
	}
	if _, inodes, err := (OS{}).Usage(root); err != nil || inodes > 3 {
		t.Errorf("%d inodes counted with a mount (%v)", inodes, err)
	}
	if err := (OS{}).Unmount(target); err != nil {
		t.Fatal(err)
	}
	if raw, err := os.ReadFile(filepath.Join(outside, "file")); err != nil || string(raw) != "kept" {
		t.Errorf("a file on the mount: %q, %v", raw, err)
	}
}
