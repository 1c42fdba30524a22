package containerd

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/mountinfo"
)

// TestImportEndsWithItsProcess checks that an import ends when the node that
// runs it is killed.
func TestImportEndsWithItsProcess(t *testing.T) {
	const inNode = "CORACLE_TEST_BUNDLE"
	if bundle := os.Getenv(inNode); bundle != "" {
		r, err := New(Config{BundleDir: bundle, DataDir: "/d", RunDir: "/r", CNIConfDir: "/c"})
		if err != nil {
			t.Fatal(err)
		}
		t.Fatal(r.ImportImage(t.Context(), "image.tar"))
	}
	dir := t.TempDir()
	alive := filepath.Join(dir, "alive") // open for writing as long as ctr lives
	ctr := fmt.Sprintf("#!/bin/sh\nexec 3>%s\necho imports >&3\nexec sleep 1000\n", alive)
	if err := errors.Join(
		unix.Mkfifo(alive, 0o600), os.Mkdir(filepath.Join(dir, "bin"), 0o700),
		os.WriteFile(filepath.Join(dir, "bin", "ctr"), []byte(ctr), 0o700),
	); err != nil {
		t.Fatal(err)
	}
	node := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	node.Env = append(os.Environ(), inNode+"="+dir)
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(node.Process.Kill(), node.Wait()) })
	ended := make(chan error, 1)
	go func() {
		f, err := os.Open(alive)
		if err != nil {
			ended <- err
			return
		}
		defer func() { _ = f.Close() }()
		lines := bufio.NewScanner(f)
		if !lines.Scan() {
			ended <- errors.New("ctr exited")
			return
		}
		if err := node.Process.Kill(); err != nil {
			ended <- err
			return
		}
		lines.Scan()
		ended <- lines.Err()
	}()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(2 * time.Minute):
		t.Error("the import is still running")
	}
}

// TestUnmountBelowSymlink checks that containerd's mounts are found below a
// directory that was moved and replaced by a symbolic link. Other file systems
// there belong to the user.
func TestUnmountBelowSymlink(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := t.TempDir()
	moved, link := filepath.Join(dir, "moved"), filepath.Join(dir, "link")
	own, foreign := filepath.Join(moved, rootName, "snapshot"), filepath.Join(moved, "nfs")
	mount := func(point string) {
		t.Helper()
		if err := os.MkdirAll(point, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("none", point, "tmpfs", 0, ""); err != nil {
			t.Skipf("cannot mount here: %v", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(point, unix.MNT_DETACH) })
	}
	mount(moved)
	mount(own)
	mount(foreign)
	if err := os.Symlink(moved, link); err != nil {
		t.Fatal(err)
	}
	if err := unmountBelow(link); err != nil {
		t.Error(err)
	}
	points, err := mountinfo.Points()
	if left := mountinfo.Below(points, dir); err != nil || !slices.Equal(left, []string{moved, foreign}) {
		t.Errorf("mounts left: %v, %v", left, err)
	}
}
