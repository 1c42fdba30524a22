package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// stranger is another user of the machine.
const stranger = 1234

// theirHome returns a directory of another user with a link to a directory of
// this user.
func theirHome(t *testing.T) (home, secret string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("giving files to others needs root")
	}
	top := t.TempDir()
	home, secret = filepath.Join(top, "home"), filepath.Join(top, "secret")
	if err := errors.Join(os.Mkdir(home, 0o755), os.Mkdir(secret, 0o700), os.Lchown(home, stranger, stranger)); err != nil {
		t.Fatal(err)
	}
	return home, secret
}

// A user's links cannot make root write to places closed to that user.
func TestKubeconfigIsNotLedAstray(t *testing.T) {
	home, secret := theirHome(t)
	link := filepath.Join(home, ".kube")
	if err := errors.Join(os.Symlink(secret, link), os.Lchown(link, stranger, stranger)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(link, "config")
	if _, err := MergeContext(t.Context(), file, "a", oursNamed("a")); err == nil || !strings.Contains(err.Error(), "a link that another user can change leads to "+secret) {
		t.Errorf("a directory that is a link: %v", err)
	}
	direct := filepath.Join(home, "config")
	if err := errors.Join(os.Symlink(filepath.Join(secret, "config"), direct), os.Lchown(direct, stranger, stranger)); err != nil {
		t.Fatal(err)
	}
	if _, err := MergeContext(t.Context(), direct, "a", oursNamed("a")); err == nil {
		t.Error("a file that is a link is written")
	}
	if err := RemoveContext(t.Context(), file, "a", Merged{}); err == nil {
		t.Error("a context is removed behind a link")
	}
	if err := CheckKubeconfig(file); err == nil {
		t.Error("a file behind a link is called writable")
	}
	if left := listed(t, secret); len(left) > 0 {
		t.Errorf("written were %v", left)
	}
}

// Links of a user to the user's own files still work, and so do links of root.
func TestKubeconfigBehindLinksOfItsOwner(t *testing.T) {
	home, secret := theirHome(t)
	real := filepath.Join(home, "dotfiles")
	if err := errors.Join(os.Mkdir(real, 0o700), os.Lchown(real, stranger, stranger), os.Symlink("dotfiles", filepath.Join(home, ".kube")), os.Symlink(secret, secret+"-link")); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{filepath.Join(home, ".kube"), secret + "-link"} {
		file := filepath.Join(dir, "config")
		m, err := MergeContext(t.Context(), file, "a", oursNamed("a"))
		if err != nil || len(m.Made) != 1 {
			t.Fatalf("%s: %+v, %v", file, m, err)
		}
		if has, err := HasContext(file, "a"); err != nil || !has {
			t.Errorf("%s: has the context: %v, %v", file, has, err)
		}
		if err := RemoveContext(t.Context(), file, "a", m); err != nil {
			t.Error(err)
		}
	}
	if left := append(listed(t, real), listed(t, secret)...); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

// If a directory is replaced while a file in it is written, the new directory
// gets neither the file nor a temporary one.
func TestKubeconfigOfADirectoryThatIsSwapped(t *testing.T) {
	home, secret := theirHome(t)
	kube := filepath.Join(home, ".kube")
	if err := errors.Join(os.Mkdir(kube, 0o700), os.Lchown(kube, stranger, stranger)); err != nil {
		t.Fatal(err)
	}
	k, err := openKubeconfig(filepath.Join(kube, "config"), true)
	if err != nil {
		t.Fatal(err)
	}
	defer k.close()
	moved := filepath.Join(home, "moved")
	if err := errors.Join(os.Rename(kube, moved), os.Symlink(secret, kube)); err != nil {
		t.Fatal(err)
	}
	if err := k.lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := k.replace([]byte("key")); err != nil {
		t.Fatal(err)
	}
	if err := k.dir.remove("config.lock"); err != nil {
		t.Error(err)
	}
	if left := listed(t, secret); len(left) > 0 {
		t.Errorf("behind the link were written %v", left)
	}
	if left := listed(t, moved); len(left) != 1 || left[0] != "config" {
		t.Errorf("in the directory are %v", left)
	}
}

// CheckKubeconfig finds out before a cluster starts whether a kubeconfig can be
// written, and creates nothing.
func TestCheckKubeconfig(t *testing.T) {
	top := t.TempDir()
	if err := CheckKubeconfig(filepath.Join(top, "missing", "config")); err != nil {
		t.Error(err)
	}
	if err := CheckKubeconfig(top); err == nil || !strings.Contains(err.Error(), "--kubeconfig") {
		t.Errorf("a directory: %v", err)
	}
	files(t, top, "file")
	if err := CheckKubeconfig(filepath.Join(top, "file", "config")); err == nil {
		t.Error("a directory that is a file")
	}
	if left := listed(t, top); len(left) != 1 {
		t.Errorf("made was %v", left)
	}
	if os.Geteuid() != 0 {
		return
	}
	closed := filepath.Join(top, "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", closed, "tmpfs", unix.MS_RDONLY, ""); err != nil {
		t.Skipf("cannot mount here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(closed, unix.MNT_DETACH) })
	if err := CheckKubeconfig(filepath.Join(closed, "config")); err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("a disk that is read-only: %v", err)
	}
}
