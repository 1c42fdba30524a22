// Package tree removes directories with untrusted content: pods choose how deep
// and wide their directories are, and what is linked there.
package tree

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// maxDepth is how many directories a removal holds open. Deeper ones are first
// moved to the root of the tree.
const maxDepth = 64

// Remove removes a file, or a directory with everything in it. A missing one is
// no error. Remove follows no symbolic link. It fails at a mount point, because
// what is mounted may belong to others. After an error, everything that is left
// is within the directory.
func Remove(path string) error {
	err := unix.Unlinkat(unix.AT_FDCWD, path, 0)
	if errors.Is(err, unix.EISDIR) {
		err = unix.Unlinkat(unix.AT_FDCWD, path, unix.AT_REMOVEDIR)
	}
	if done, err := outcome(path, err); done {
		return err
	}
	dir, err := os.OpenFile(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("remove: %w", err)
	}
	r := &removal{root: int(dir.Fd())}
	err = r.empty(dir, 0)
	if err := errors.Join(err, dir.Close()); err != nil {
		return err
	}
	_, err = outcome(path, unix.Unlinkat(unix.AT_FDCWD, path, unix.AT_REMOVEDIR))
	return err
}

// outcome reports whether the removal of a file or directory is done, and its
// error. It is not done for a directory that is not empty.
func outcome(path string, err error) (bool, error) {
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return true, nil
	case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST):
		return false, &fs.PathError{Op: "remove", Path: path, Err: err}
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EXDEV):
		return true, fmt.Errorf("something is mounted at %s: unmount it first", path)
	}
	return true, &fs.PathError{Op: "remove", Path: path, Err: err}
}

type removal struct {
	root  int
	moved int
}

// empty removes everything in dir.
func (r *removal) empty(dir *os.File, depth int) error {
	const batch = 1024
	for again := false; ; again = true {
		removed := 0
		for {
			names, err := dir.Readdirnames(batch)
			for _, name := range names {
				if err := r.remove(dir, name, depth); err != nil {
					return err
				}
			}
			removed += len(names)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
		}
		if again && removed == 0 {
			return nil
		}
		if _, err := dir.Seek(0, io.SeekStart); err != nil { // removals may make Readdirnames skip entries
			return err
		}
	}
}

func (r *removal) remove(in *os.File, name string, depth int) error {
	dir, path := int(in.Fd()), filepath.Join(in.Name(), name)
	err := unix.Unlinkat(dir, name, 0)
	if errors.Is(err, unix.EISDIR) {
		err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	}
	if done, err := outcome(path, err); done {
		return err
	}
	if depth == maxDepth {
		return r.moveUp(dir, name, path)
	}
	fd, err := open(dir, name)
	if err != nil {
		_, err := outcome(path, err)
		return err
	}
	child := os.NewFile(uintptr(fd), path)
	err = r.empty(child, depth+1)
	if err := errors.Join(err, child.Close()); err != nil {
		return err
	}
	_, err = outcome(path, unix.Unlinkat(dir, name, unix.AT_REMOVEDIR))
	return err
}

// open opens a directory in another one, on the same mount. It retries if a
// rename interrupts it.
func open(dir int, name string) (fd int, err error) {
	const attempts = 32
	how := unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	}
	for range attempts {
		if fd, err = unix.Openat2(dir, name, &how); !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return fd, err
}

// moveUp moves a directory to the root of the tree, where it is removed later.
func (r *removal) moveUp(dir int, name, path string) error {
	for {
		r.moved++
		err := unix.Renameat2(dir, name, r.root, fmt.Sprintf(".removed-%d-%d", os.Getpid(), r.moved), unix.RENAME_NOREPLACE)
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		_, err = outcome(path, err)
		return err
	}
}
