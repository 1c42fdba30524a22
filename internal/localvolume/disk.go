package localvolume

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/host/tree"
	"github.com/coracle-io/coracle/internal/sharedfile"
)

// disk is the directory that holds the volumes. Only root can enter it; the
// volumes in it are open to all users, who reach them as mounts of containers.
type disk struct{ dir string }

// path returns where a volume is.
func (d disk) path(name string) string { return filepath.Join(d.dir, name) }

// made reports whether the directory exists.
func (d disk) made() (bool, error) {
	_, err := os.Lstat(d.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// make makes the directory.
func (d disk) make() error {
	if err := os.Mkdir(d.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return sharedfile.SyncDir(filepath.Dir(d.dir))
}

// create makes the directory of a volume, and returns once it would survive a
// power failure. An attempt that was interrupted may have left the directory.
func (d disk) create(name string) error {
	if err := os.Mkdir(d.path(name), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.Chmod(d.path(name), 0o777); err != nil { // whatever the umask is
		return err
	}
	return sharedfile.SyncDir(d.dir)
}

// remove removes a volume with everything in it. It fails at a mount point.
func (d disk) remove(name string) error { return tree.Remove(d.path(name)) }

// removeEmpty removes the directory of a volume that was never used.
func (d disk) removeEmpty(name string) error {
	if err := unix.Rmdir(d.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &fs.PathError{Op: "rmdir", Path: d.path(name), Err: err}
	}
	return nil
}
