package volume

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

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
		got, err := v.write(dir, in, nil, nil)
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
		t.Errorf("an open file of the old version was lost: %q %v", old, err)
	}
	versions, err := filepath.Glob(filepath.Join(dir, "..20*"))
	if err != nil || len(versions) != 1 {
		t.Errorf("old versions are left: %v %v", versions, err)
	}
}

// A user who may read a file may also follow the link to it where the kernel
// protects links (fs.protected_symlinks).
func TestLinksHaveTheOwnersOfTheirFiles(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to change owners")
	}
	v := &Manager{FS: files.OS{}, Mounter: files.OS{}}
	dir := filepath.Join(t.TempDir(), "vol")
	if _, err := v.write(dir, map[string]file{
		"token": {data: []byte("t"), mode: 0o600, uid: new(int64(1000))}, "deep/token": {data: []byte("t"), mode: 0o600, uid: new(int64(1001))},
		"ca.crt": {data: []byte("c"), mode: 0o644},
	}, nil, nil); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]uint32{"token": 1000, "deep": 1001, "ca.crt": 0, dataLink: 0} {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil || info.Mode().Type() != os.ModeSymlink || info.Sys().(*syscall.Stat_t).Uid != want {
			t.Errorf("%s: %+v %v, want a link of user %d", name, info, err, want)
		}
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

// Containers mount other volumes in one that is read-only, so that the mount
// points must be there, and must stay when the content changes.
func TestNestedMountPoints(t *testing.T) {
	v := &Manager{FS: files.OS{}, Mounter: files.OS{}}
	dir := filepath.Join(t.TempDir(), "vol")
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{VolumeMounts: []v1.VolumeMount{
		{Name: "outer", MountPath: "/etc/cfg/"}, {Name: "inner", MountPath: "/etc/cfg/conf.d"}, {Name: "scratch", MountPath: "/etc/cfg/a/b"},
		{Name: "key", MountPath: "/etc/cfg/key", SubPath: "key"}, {Name: "odd", MountPath: "/etc/cfg/..data/x"}, {Name: "beside", MountPath: "/etc/cfg2"},
		{Name: "outer", MountPath: "/elsewhere", SubPath: "key"}, {Name: "inner", MountPath: "/elsewhere/x"},
	}}}}}
	nested := nestedMountPoints(pod)["outer"]
	if want := []string{"conf.d", "a/b", "key"}; !slices.Equal(nested, want) {
		t.Fatalf("the nested mount points are %q, want %q", nested, want)
	}
	inode := func() uint64 {
		t.Helper()
		info, err := os.Stat(filepath.Join(dir, "conf.d"))
		if err != nil || !info.IsDir() {
			t.Fatalf("the mount point is %+v (%v)", info, err)
		}
		return info.Sys().(*syscall.Stat_t).Ino
	}
	var first uint64
	for _, content := range []string{"1", "1", "2"} {
		if _, err := v.write(dir, map[string]file{"key": {data: []byte(content), mode: 0o640}}, nested, nil); err != nil {
			t.Fatal(err)
		}
		if err := v.makeMountPoints(dir, nested); err != nil {
			t.Fatal(err)
		}
		if raw, err := os.ReadFile(filepath.Join(dir, "key")); err != nil || string(raw) != content {
			t.Errorf("the file is %q (%v), want %q", raw, err, content)
		}
		if info, err := os.Stat(filepath.Join(dir, "a/b")); err != nil || !info.IsDir() {
			t.Errorf("the mount point a/b is %+v (%v)", info, err)
		}
		if first == 0 {
			first = inode()
		} else if got := inode(); got != first {
			t.Error("the mount point was made anew, which unmounts what is on it")
		}
	}
}

// A container may replace the directory that is its subPath by a file.
func TestSubPathThatBecomesAFile(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	v := &Manager{FS: files.OS{}, Mounter: files.OS{}}
	dir := t.TempDir()
	root, target := filepath.Join(dir, "root"), filepath.Join(dir, "target")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = files.OS{}.Unmount(target) }()
	sub := filepath.Join(root, "sub")
	for _, isFile := range []bool{false, true, true, false} {
		if err := os.RemoveAll(sub); err != nil {
			t.Fatal(err)
		}
		if isFile {
			if err := os.WriteFile(sub, []byte("text"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := v.remount(root, "sub", target); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(target); err != nil || info.IsDir() == isFile {
			t.Errorf("mounted is %+v (%v), want a file: %t", info, err, isFile)
		}
	}
}
