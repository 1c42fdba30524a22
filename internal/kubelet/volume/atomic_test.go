package volume

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/coracle-io/coracle/internal/kubelet/files"
)

func TestWriteIsAtomicAndExact(t *testing.T) {
	v := &Manager{FS: files.OS{}, Mounter: files.OS{}}
	dir := filepath.Join(t.TempDir(), "vol")
	write := func(changed bool, payload map[string]string) {
		t.Helper()
		in := map[string]file{}
		for path, text := range payload {
			in[path] = file{data: []byte(text), mode: 0o640}
		}
		got, err := v.write(dir, in, nil)
		if err != nil || got != changed {
			t.Fatalf("changed %v (%v), want %v", got, err, changed)
		}
		for path, text := range payload {
			raw, err := os.ReadFile(filepath.Join(dir, path))
			if err != nil || string(raw) != text {
				t.Errorf("%s: %q %v", path, raw, err)
			}
			if info, err := os.Stat(filepath.Join(dir, path)); err != nil || info.Mode().Perm() != 0o640 {
				t.Errorf("%s has mode %v (%v)", path, info.Mode(), err)
			}
		}
	}
	write(true, map[string]string{"a": "1", "deep/er/b": "2"})
	write(false, map[string]string{"a": "1", "deep/er/b": "2"})
	held, err := os.Open(filepath.Join(dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Close() }()
	write(true, map[string]string{"a": "other", "c": "3"})
	if _, err := os.Lstat(filepath.Join(dir, "deep")); !os.IsNotExist(err) {
		t.Errorf("a file that is gone is still shown: %v", err)
	}
	old := make([]byte, 1)
	if n, err := held.Read(old); n != 1 || err != nil || old[0] != '1' {
		t.Errorf("whoever had the old version open lost it: %q %v", old, err)
	}
	versions, err := filepath.Glob(filepath.Join(dir, "..20*"))
	if err != nil || len(versions) != 1 {
		t.Errorf("old versions are left: %v %v", versions, err)
	}
}

func TestSubPathStaysBelow(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := t.TempDir()
	root, target := filepath.Join(dir, "root"), filepath.Join(dir, "target")
	if err := os.MkdirAll(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Join(root, "escape")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../..", filepath.Join(root, "up")); err != nil {
		t.Fatal(err)
	}
	for _, sub := range []string{"escape", "escape/passwd", "up", "../target"} {
		if err := (files.OS{}).BindBeneath(root, sub, target, false); err == nil {
			_ = files.OS{}.Unmount(target)
			t.Errorf("subPath %q left the volume", sub)
		}
	}
}
