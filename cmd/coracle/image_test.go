package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// An archive that cannot be written leaves an earlier one of the same name as it
// was, and nothing else.
func TestSaveReplacesAnArchiveOnlyWhenItIsWhole(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "web.tar"), filepath.Join(dir, "link.tar")
	if err := errors.Join(os.WriteFile(file, []byte("before"), 0o600), os.Symlink("web.tar", link)); err != nil {
		t.Fatal(err)
	}
	noImage := errors.New("no such image")
	text := func(s string, err error) func(io.Writer) error {
		return func(w io.Writer) error {
			_, writeErr := io.WriteString(w, s)
			return errors.Join(writeErr, err)
		}
	}
	for _, c := range []struct {
		file, write string
		err         error
		want        string
	}{
		{file, "half", noImage, "before"},
		{filepath.Join(dir, "new.tar"), "half", noImage, "before"},
		{file, "after", nil, "after"},
		{link, "by link", nil, "by link"},
		{os.DevNull, "nothing", nil, "by link"},
		{os.DevNull, "nothing", noImage, "by link"},
	} {
		if err := saveTo(c.file, text(c.write, c.err)); !errors.Is(err, c.err) {
			t.Errorf("%s: %v", c.file, err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != c.want {
			t.Errorf("after %q to %s: %q, %v; want %q", c.write, c.file, got, err, c.want)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("in the directory are %v, %v", left, err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("the link has become %v, %v", info, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the archive is %v, %v", info, err)
	}
	if err := saveTo(dir, text("", nil)); err == nil {
		t.Error("a directory was written")
	}
}

// The password of --user is for one registry: it is not even asked for if the
// images are of several.
func TestLoginIsForOneRegistry(t *testing.T) {
	const want = "coracle: --user: the images are from the registries docker.io, registry.example: run the command once for each registry, with its own credentials\n"
	if out, problem, code := execute(t, "image", "pull", "--user=me:secret", "registry.example/web:1", "web", "registry.example/db"); code != exitFailed || problem != want {
		t.Errorf("%q, %q, %d", out, problem, code)
	}
	if os.Geteuid() != 0 {
		return // the records cannot be read
	}
	name := "--name=test-login-one-registry"
	if out, problem, code := execute(t, "image", "pull", name, "--user=me:secret", "registry.example/web:1", "registry.example/db"); code != exitNoCluster {
		t.Errorf("of one registry: %q, %q, %d", out, problem, code)
	}
}
