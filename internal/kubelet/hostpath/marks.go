package hostpath

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A kubelet makes a directory in Logs to mount a real one on in containers, with the file
// MarkName, which has MarkText. Each kubelet that uses such a directory has a mark of its
// own there, which says where its root directory is: whatever runs the kubelet, it has one.
// All of that is covered in containers. The directory may be removed when no mark of a
// kubelet that exists is left, and nothing else is in it:
//
//	/var/log/pods/
//	  .coracle            a kubelet has made the directory
//	  .coracle-1f0c...    the kubelet with the root directory in it uses it
const (
	MarkName = ".coracle"
	MarkText = "Pods that have /var/log find the logs of pods here. This directory is removed with the last kubelet that has a mark in it.\n"

	usePrefix = MarkName + "-"
	useText   = "The kubelet with this root directory uses this directory:\n"
	maxUse    = len(useText) + unix.PathMax + 1
)

// Mark returns the name and the content of the mark of a kubelet with this root directory.
func Mark(root string) (name string, content []byte) {
	root = filepath.Clean(root)
	sum := sha256.Sum256([]byte(root))
	return usePrefix + hex.EncodeToString(sum[:8]), []byte(useText + root + "\n")
}

// RemoveMarks removes the marks of kubelets with these root directories, whose containers
// have ended, and of all kubelets whose root directory is gone. Then it removes the
// directories that kubelets have made, if none uses them and nobody has written there.
func RemoveMarks(roots ...string) error {
	return errors.Join(removeMarks(PodLogs, roots), removeMarks(LogLinks, roots))
}

func removeMarks(dir string, roots []string) error {
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return nil
	}
	at, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = at.Close() }()
	if _, err := at.Lstat(MarkName); err != nil {
		return nil // others have made it
	}
	entries, err := fs.ReadDir(at.FS(), ".")
	if err != nil {
		return err
	}
	used := false
	for _, e := range entries {
		switch name := e.Name(); {
		case name == MarkName:
		case isUnused(at, name, roots):
			if err := at.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		default:
			used = true
		}
	}
	if used {
		return nil
	}
	if err := at.Remove(MarkName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	switch err := unix.Rmdir(dir); {
	case errors.Is(err, unix.ENOTEMPTY): // somebody uses it since
		return restore(at)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
	}
	return nil
}

// restore writes MarkName again, unless it is there.
func restore(at *os.Root) error {
	mark, err := at.OpenFile(MarkName, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = mark.WriteString(MarkText)
	return errors.Join(err, mark.Close())
}

// isUnused reports whether a file is the mark of a kubelet with one of these root
// directories, or of one whose root directory is gone.
func isUnused(at *os.Root, name string, roots []string) bool {
	if !strings.HasPrefix(name, usePrefix) {
		return false
	}
	isOf := func(root string) bool { own, _ := Mark(root); return own == name }
	if slices.ContainsFunc(roots, isOf) {
		return true
	}
	root, known := marked(at, name)
	if !known {
		return false
	}
	_, err := os.Lstat(root)
	return errors.Is(err, fs.ErrNotExist)
}

// marked returns the root directory in the mark of a kubelet. It reports false for a file
// that is none, or that is not written completely yet. Pods may have put it there.
func marked(at *os.Root, name string) (root string, ok bool) {
	f, err := at.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", false
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", false
	}
	raw, err := io.ReadAll(io.LimitReader(f, int64(maxUse)))
	root, isMark := strings.CutPrefix(string(raw), useText)
	root, whole := strings.CutSuffix(root, "\n")
	return root, err == nil && isMark && whole && filepath.IsAbs(root)
}
