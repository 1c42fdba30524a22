package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coracle-io/coracle/test/mark"
)

func TestMain(m *testing.M) { os.Exit(mark.Main(m)) }

// fileSystem is an FS under test, with a directory for the test's files.
type fileSystem struct {
	FS
	root string
}

// testFS runs f on each implementation of FS.
func testFS(t *testing.T, f func(t *testing.T, s fileSystem)) {
	t.Run("OS", func(t *testing.T) { f(t, fileSystem{OS{}, t.TempDir()}) })
	t.Run("Memory", func(t *testing.T) {
		m := &Memory{}
		if err := m.MkdirAll("/root", 0o755); err != nil {
			t.Fatal(err)
		}
		f(t, fileSystem{m, "/root"})
	})
}

func (s fileSystem) path(name string) string { return filepath.Join(s.root, name) }

func (s fileSystem) mkdir(t *testing.T, name string) {
	t.Helper()
	if err := s.MkdirAll(s.path(name), 0o750); err != nil {
		t.Fatal(err)
	}
}

func (s fileSystem) write(t *testing.T, name, content string) {
	t.Helper()
	if err := s.WriteFile(s.path(name), []byte(content), 0o640); err != nil {
		t.Fatal(err)
	}
}

func (s fileSystem) symlink(t *testing.T, target, name string) {
	t.Helper()
	if err := s.Symlink(target, s.path(name)); err != nil {
		t.Fatal(err)
	}
}

func (s fileSystem) want(t *testing.T, name, content string) {
	t.Helper()
	if raw, err := s.ReadFile(s.path(name), 1<<10); err != nil || string(raw) != content {
		t.Errorf("%s is %q, %v; want %q", name, raw, err, content)
	}
}

func TestFSFiles(t *testing.T) {
	testFS(t, func(t *testing.T, s fileSystem) {
		s.mkdir(t, "dir/sub")
		s.mkdir(t, "dir/sub")
		s.write(t, "dir/file", "12345")
		s.write(t, "dir/file", "123")
		s.want(t, "dir/file", "123")
		if raw, err := s.ReadFile(s.path("dir/file"), 3); err != nil || string(raw) != "123" {
			t.Errorf("a file of just the limit: %q, %v", raw, err)
		}
		if raw, err := s.ReadFile(s.path("dir/file"), 2); !errors.Is(err, ErrTooLarge) || raw != nil {
			t.Errorf("a file over the limit: %q, %v", raw, err)
		}
		for content, replace := range map[string]func(string, []byte, fs.FileMode) error{"new": s.Replace, "newer": s.ReplaceUnsynced} {
			if err := replace(s.path("dir/file"), []byte(content), 0o600); err != nil {
				t.Error(err)
			}
			s.want(t, "dir/file", content)
		}
		if mode, err := s.Stat(s.path("dir/file")); err != nil || mode != 0o600 {
			t.Errorf("mode %v, %v", mode, err)
		}
		if err := s.Chmod(s.path("dir/file"), 0o640); err != nil {
			t.Error(err)
		}
		if mode, err := s.Stat(s.path("dir/file")); err != nil || mode != 0o640 {
			t.Errorf("mode %v, %v", mode, err)
		}
		if mode, err := s.Stat(s.path("dir")); err != nil || mode != fs.ModeDir|0o750 {
			t.Errorf("mode of a directory %v, %v", mode, err)
		}
		s.write(t, "dir/a", "")
		if names, err := s.ReadDir(s.path("dir")); err != nil || !slices.Equal(names, []string{"a", "file", "sub"}) {
			t.Errorf("names %q, %v", names, err)
		}
		if _, inodes, err := s.Usage(s.path("dir")); err != nil || inodes != 4 {
			t.Errorf("%d inodes, %v", inodes, err)
		}
	})
}

// Both implementations fail at the same calls, with errors that callers can
// tell apart.
func TestFSErrors(t *testing.T) {
	testFS(t, func(t *testing.T, s fileSystem) {
		s.mkdir(t, "dir/sub")
		s.write(t, "dir/file", "x")
		s.symlink(t, "loop", "loop")
		missing := s.path("missing/file")
		for name, test := range map[string]struct {
			err  error
			want error // nil: any error
		}{
			"write below a missing directory":   {s.WriteFile(missing, nil, 0o600), fs.ErrNotExist},
			"replace below a missing directory": {s.Replace(missing, nil, 0o600), fs.ErrNotExist},
			"the same without waiting":          {s.ReplaceUnsynced(missing, nil, 0o600), fs.ErrNotExist},
			"read a missing file":               {second(s.ReadFile(missing, 1)), fs.ErrNotExist},
			"read a directory":                  {second(s.ReadFile(s.path("dir"), 1)), nil},
			"read a loop of links":              {second(s.ReadFile(s.path("loop"), 1)), nil},
			"list a missing directory":          {second(s.ReadDir(missing)), fs.ErrNotExist},
			"list a file":                       {second(s.ReadDir(s.path("dir/file"))), nil},
			"stat a missing file":               {second(s.Stat(missing)), fs.ErrNotExist},
			"the group of a missing file":       {second(s.Group(missing)), fs.ErrNotExist},
			"lstat a missing file":              {second(s.Lstat(missing)), fs.ErrNotExist},
			"read a missing link":               {second(s.Readlink(missing)), fs.ErrNotExist},
			"read a link that is a file":        {second(s.Readlink(s.path("dir/file"))), nil},
			"link over a file":                  {s.Symlink("x", s.path("dir/file")), fs.ErrExist},
			"link below a missing directory":    {s.Symlink("x", missing), fs.ErrNotExist},
			"rename a missing file":             {s.Rename(missing, s.path("dir/other")), fs.ErrNotExist},
			"rename into a missing directory":   {s.Rename(s.path("dir/file"), missing), fs.ErrNotExist},
			"chmod a missing file":              {s.Chmod(missing, 0o600), fs.ErrNotExist},
			"remove a missing file":             {s.Remove(missing), fs.ErrNotExist},
			"remove a directory with files":     {s.Remove(s.path("dir")), nil},
			"make a directory below a file":     {s.MkdirAll(s.path("dir/file/sub"), 0o700), nil},
			"tail a missing file":               {second(s.TailBeneath(s.root, "missing", 1)), fs.ErrNotExist},
		} {
			if test.err == nil || test.want != nil && !errors.Is(test.err, test.want) {
				t.Errorf("%s: %v, want %v", name, test.err, test.want)
			}
		}
		s.want(t, "dir/file", "x")
		if err := s.RemoveAll(missing); err != nil {
			t.Errorf("remove a missing tree: %v", err)
		}
		if bytes, inodes, err := s.Usage(missing); bytes != 0 || inodes != 0 || err != nil {
			t.Errorf("the usage of a missing tree: %d, %d, %v", bytes, inodes, err)
		}
	})
}

func second[T any](_ T, err error) error { return err }

func TestFSLinks(t *testing.T) {
	testFS(t, func(t *testing.T, s fileSystem) {
		s.mkdir(t, "one")
		s.write(t, "one/file", "first")
		s.write(t, "outside", "hidden")
		s.symlink(t, "one", "current")
		s.symlink(t, "../outside", "one/up")
		s.symlink(t, "gone", "dangling")
		s.want(t, "current/file", "first")
		if target, err := s.Readlink(s.path("current")); err != nil || target != "one" {
			t.Errorf("the link points to %q, %v", target, err)
		}
		if mode, err := s.Lstat(s.path("current")); err != nil || mode&fs.ModeSymlink == 0 {
			t.Errorf("lstat of a link: %v, %v", mode, err)
		}
		if mode, err := s.Stat(s.path("current")); err != nil || !mode.IsDir() {
			t.Errorf("stat of a link: %v, %v", mode, err)
		}
		if _, err := s.Stat(s.path("dangling")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("stat of a dangling link: %v", err)
		}
		if raw, err := s.ReadBeneath(s.root, "current/file", 10); err != nil || string(raw) != "first" {
			t.Errorf("below the root by a link: %q, %v", raw, err)
		}
		if raw, err := s.TailBeneath(s.path("one"), "file", 2); err != nil || string(raw) != "st" {
			t.Errorf("the tail is %q, %v", raw, err)
		}
		for _, path := range []string{"up", "../outside", "../one/../outside"} {
			if raw, err := s.ReadBeneath(s.path("one"), path, 10); err == nil {
				t.Errorf("%s out of the root: %q", path, raw)
			}
		}
		// A link is replaced by a rename, as the contents of volumes are.
		s.mkdir(t, "two")
		s.write(t, "two/file", "second")
		s.symlink(t, "two", "next")
		if err := s.Rename(s.path("next"), s.path("current")); err != nil {
			t.Fatal(err)
		}
		s.want(t, "current/file", "second")
		if err := s.RemoveAll(s.path("current")); err != nil {
			t.Fatal(err)
		}
		s.want(t, "two/file", "second")
	})
}

// The mounts of a directory are found by a path with links as well. Volumes
// would otherwise be mounted again and again, and never unmounted.
func TestMountsBelowALink(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := t.TempDir()
	put(t, filepath.Join(dir, "real/pods/uid/volume x/file"), "x")
	link(t, "real", filepath.Join(dir, "link"))
	target := filepath.Join(dir, "link/pods/uid/volume x")
	if err := (OS{}).Mount("tmpfs", target, "tmpfs", nil); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = OS{}.Unmount(target) }()
	for _, path := range []string{target, filepath.Join(dir, "link/pods/uid"), filepath.Join(dir, "link")} {
		if got, err := (OS{}).Below(path); err != nil || !slices.Equal(got, []string{target}) {
			t.Errorf("below %s are %q, %v", path, got, err)
		}
	}
	if got, err := (OS{}).Below(filepath.Join(dir, "real/pods/uid/volume")); err != nil || len(got) > 0 {
		t.Errorf("below the name of another directory are %q, %v", got, err)
	}
	if got, err := (OS{}).Below(filepath.Join(dir, "missing")); err != nil || len(got) > 0 {
		t.Errorf("below a missing directory are %q, %v", got, err)
	}
	for path, want := range map[string]bool{target: true, filepath.Dir(target): false, filepath.Join(dir, "missing"): false, "/proc": true} {
		if got, err := (OS{}).IsMountPoint(path); err != nil || got != want {
			t.Errorf("%s is a mount point: %v, %v", path, got, err)
		}
	}
	if got, err := (OS{}).Below("/"); err != nil || !slices.ContainsFunc(got, func(p string) bool { return strings.HasSuffix(p, "real/pods/uid/volume x") }) {
		t.Errorf("below / are %q, %v", got, err)
	}
	if err := (OS{}).Unmount(target); err != nil {
		t.Fatal(err)
	}
	if err := (OS{}).Unmount(target); err != nil {
		t.Errorf("unmounting what is not mounted: %v", err)
	}
}

// A directory is mounted on itself and made shared as the kubelet does it, behind a link,
// too. The file system in memory does the same.
func TestShared(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := t.TempDir()
	put(t, filepath.Join(dir, "real/pods/file"), "x")
	link(t, "real", filepath.Join(dir, "link"))
	memory := &Memory{}
	for name, m := range map[string]Mounter{"real": OS{}, "link": OS{}, "memory": memory} {
		root := filepath.Join(dir, name)
		if name == "memory" {
			root = filepath.Join(dir, "real")
		}
		if shared, err := m.IsShared(filepath.Dir(root)); err != nil || shared {
			t.Skipf("%s: temporary files are on a shared mount: %v", name, err)
		}
		if err := m.Mount(root, root, "", []string{"bind"}); err != nil {
			t.Fatal(err)
		}
		if shared, err := m.IsShared(root); err != nil || shared {
			t.Errorf("%s: shared before it was made so (%v)", name, err)
		}
		if err := m.Mount("none", root, "", []string{"shared"}); err != nil {
			t.Error(err)
		}
		for _, path := range []string{root, filepath.Join(root, "pods")} {
			if shared, err := m.IsShared(path); err != nil || !shared {
				t.Errorf("%s: %s is not shared (%v)", name, path, err)
			}
		}
		real := filepath.Join(dir, "real") // Unmount follows no link
		if err := m.Unmount(real); err != nil {
			t.Fatal(err)
		}
		if shared, err := m.IsShared(real); err != nil || shared {
			t.Errorf("%s: shared after the end (%v)", name, err)
		}
	}
	if err := memory.Mount("none", "/nothing", "", []string{"shared"}); err == nil {
		t.Error("what is not mounted is shared")
	}
}

// A file that has the content already is not written again.
func TestReplaceOfAnEqualFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	var before os.FileInfo
	for _, test := range []struct {
		content string
		mode    fs.FileMode
		same    bool
	}{{"", 0o600, false}, {"one", 0o600, false}, {"one", 0o600, true}, {"two", 0o600, false}, {"two", 0o640, false}, {"two", 0o640, true}} {
		if err := (OS{}).Replace(path, []byte(test.content), test.mode); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(path)
		if err != nil || string(raw) != test.content {
			t.Errorf("the file has %q (%v), want %q", raw, err, test.content)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode() != test.mode {
			t.Fatal(info, err)
		}
		if same := before != nil && os.SameFile(before, info) && before.ModTime().Equal(info.ModTime()); same != test.same {
			t.Errorf("%q, %s: is still the same file: %t", test.content, test.mode, same)
		}
		before = info
	}
}

func TestFSMakeMarked(t *testing.T) {
	testFS(t, func(t *testing.T, s fileSystem) {
		if err := s.MakeMarked(s.path("logs/pods"), ".mark", []byte("made")); err != nil {
			t.Fatal(err)
		}
		s.want(t, "logs/pods/.mark", "made")
		if names, err := s.ReadDir(s.path("logs")); err != nil || !slices.Equal(names, []string{"pods"}) {
			t.Errorf("there are %q, %v", names, err)
		}
		if mode, err := s.Stat(s.path("logs/pods")); err != nil || mode.Perm() != 0o755 {
			t.Errorf("the mode is %v, %v", mode, err)
		}
	})
}

func TestFSAddMark(t *testing.T) {
	testFS(t, func(t *testing.T, s fileSystem) {
		if err := s.AddMark(s.path("logs/pods"), ".one", []byte("1")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("in no directory: %v", err)
		}
		if err := s.MkdirAll(s.path("logs/pods"), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, content := range []string{"1", "1", "another"} {
			if err := s.AddMark(s.path("logs/pods"), ".one", []byte(content)); err != nil {
				t.Fatal(err)
			}
			s.want(t, "logs/pods/.one", content)
		}
	})
}

// A link in place of the mark or of the directory leads to no file that is not the
// kubelet's.
func TestAddMarkAmongOthers(t *testing.T) {
	dir, theirs := t.TempDir(), t.TempDir()
	target := filepath.Join(theirs, "file")
	err := errors.Join(os.WriteFile(target, []byte("theirs"), 0o600), os.Mkdir(filepath.Join(dir, "pods"), 0o755),
		os.Symlink(target, filepath.Join(dir, "pods/.mark")), os.Symlink(theirs, filepath.Join(dir, "link")))
	if err != nil {
		t.Fatal(err)
	}
	if err := (OS{}).AddMark(filepath.Join(dir, "pods"), ".mark", []byte("made")); err != nil {
		t.Error(err)
	}
	if err := (OS{}).AddMark(filepath.Join(dir, "link"), ".mark", []byte("made")); err == nil {
		t.Error("the mark was written into a directory elsewhere")
	}
	for path, want := range map[string]string{filepath.Join(dir, "pods/.mark"): "made", target: "theirs"} {
		if raw, err := os.ReadFile(path); err != nil || string(raw) != want {
			t.Errorf("%s is %q (%v), want %q", path, raw, err, want)
		}
	}
	if names, err := os.ReadDir(theirs); err != nil || len(names) != 1 {
		t.Errorf("beside the file are %v (%v)", names, err)
	}
}

// Others may write to the parent: what they put there is not written to.
func TestMakeMarkedAmongOthers(t *testing.T) {
	for name, prepare := range map[string]func(dir, target string) error{
		"a link in place of the mark": func(dir, target string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, "pods.mark"), 0o755), os.Symlink(target, filepath.Join(dir, "pods.mark/.mark")))
		},
		"left by one that was killed": func(dir, _ string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, "pods.mark"), 0o700), os.WriteFile(filepath.Join(dir, "pods.mark/.mark"), []byte("ma"), 0o600))
		},
		"a link in place of the directory": func(dir, target string) error {
			return os.Symlink(filepath.Dir(target), filepath.Join(dir, "pods.mark"))
		},
		"another directory": func(dir, _ string) error { return os.MkdirAll(filepath.Join(dir, "pods/theirs"), 0o755) },
	} {
		dir, target := t.TempDir(), filepath.Join(t.TempDir(), "file")
		if err := errors.Join(os.WriteFile(target, []byte("theirs"), 0o600), prepare(dir, target)); err != nil {
			t.Fatal(err)
		}
		err := OS{}.MakeMarked(filepath.Join(dir, "pods"), ".mark", []byte("made"))
		_, refused := map[string]bool{"a link in place of the directory": true, "another directory": true}[name]
		if (err != nil) != refused {
			t.Errorf("%s: %v", name, err)
		}
		if raw, err := os.ReadFile(filepath.Join(dir, "pods/.mark")); !refused && (err != nil || string(raw) != "made") {
			t.Errorf("%s: the mark is %q, %v", name, raw, err)
		}
		if raw, err := os.ReadFile(target); err != nil || string(raw) != "theirs" {
			t.Errorf("%s: another file is %q, %v", name, raw, err)
		}
		if names, err := os.ReadDir(filepath.Dir(target)); err != nil || len(names) != 1 {
			t.Errorf("%s: beside it are %v, %v", name, names, err)
		}
	}
}
