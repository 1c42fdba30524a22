package host

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// maxDepth bounds how many directories are open at a time while a tree is
// removed. Pods may nest theirs as deep as they like.
const maxDepth = 64

// RemoveTree removes a directory with everything in it, if it is there. It
// follows no link and enters no mount: at the first mount point it fails, for
// what is behind one may be anybody's.
func RemoveTree(dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	parent, err := os.Open(filepath.Dir(dir))
	if err != nil {
		return err
	}
	defer func() { _ = parent.Close() }()
	r := remover{top: parent, aside: ".removing-" + filepath.Base(dir), pending: []string{filepath.Base(dir)}}
	for len(r.pending) > 0 {
		name := r.pending[0]
		r.pending = r.pending[1:]
		if err := r.remove(parent, name, 0); err != nil {
			return fmt.Errorf("remove %s: %w", dir, err)
		}
	}
	return nil
}

type remover struct {
	top     *os.File // where what is nested too deep is moved
	aside   string   // with what the names of that begin
	moved   int
	pending []string // in top
}

// remove removes an entry of a directory.
func (r *remover) remove(in *os.File, name string, depth int) error {
	err := unix.Unlinkat(int(in.Fd()), name, 0)
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("something is mounted at %s: unmount it first", filepath.Join(in.Name(), name))
	case !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM):
		return fmt.Errorf("%s: %w", filepath.Join(in.Name(), name), err)
	}
	if depth == maxDepth {
		return r.removeAside(in, name)
	}
	fd, err := unix.Openat2(int(in.Fd()), name, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV | unix.RESOLVE_BENEATH,
	})
	path := filepath.Join(in.Name(), name)
	if errors.Is(err, unix.EXDEV) {
		return fmt.Errorf("something is mounted at %s: unmount it first", path)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	d := os.NewFile(uintptr(fd), path)
	err = r.empty(d, depth)
	if err := errors.Join(err, d.Close()); err != nil {
		return err
	}
	if err := unix.Unlinkat(int(in.Fd()), name, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// empty removes everything in a directory.
func (r *remover) empty(d *os.File, depth int) error {
	const batch = 1000
	for {
		names, err := d.Readdirnames(batch)
		for _, name := range names {
			if err := r.remove(d, name, depth+1); err != nil {
				return err
			}
		}
		if len(names) == 0 {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if _, err := d.Seek(0, 0); err != nil { // entries may be skipped after removals
			return err
		}
	}
}

// removeAside moves a directory up, to be removed from there later.
func (r *remover) removeAside(in *os.File, name string) error {
	r.moved++
	aside := fmt.Sprintf("%s-%d-%d", r.aside, os.Getpid(), r.moved)
	if err := unix.Renameat(int(in.Fd()), name, int(r.top.Fd()), aside); err != nil {
		if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("something is mounted at %s: unmount it first", filepath.Join(in.Name(), name))
		}
		return fmt.Errorf("%s: %w", filepath.Join(in.Name(), name), err)
	}
	r.pending = append(r.pending, aside)
	return nil
}
