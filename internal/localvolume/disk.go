package localvolume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/coracle-io/coracle/internal/host/tree"
	"github.com/coracle-io/coracle/internal/sharedfile"
)

// disk is the directory that holds the volumes. Only root can enter it; the
// volumes in it are open to all users, who reach them as mounts of containers.
// Their sizes are limits if the file system enforces limits.
type disk struct {
	dir string
	fs  fileSystem
	mu  sync.Mutex // held from the comparison with the free space until a limit is set
}

// errNoRoom is the error of a volume that the disk has no room for.
var errNoRoom = errors.New("the disk is too small")

// path returns where a volume is.
func (d *disk) path(name string) string { return filepath.Join(d.dir, name) }

// made reports whether the directory exists.
func (d *disk) made() (bool, error) {
	_, err := os.Lstat(d.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// make makes the directory.
func (d *disk) make() error {
	if err := os.Mkdir(d.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return sharedfile.SyncDir(filepath.Dir(d.dir))
}

// create makes the directory of a volume of so many bytes, and returns once it
// would survive a power failure. An attempt that was interrupted may have left
// the directory.
func (d *disk) create(name string, bytes int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.fits(name, bytes); err != nil {
		return err
	}
	if err := os.Mkdir(d.path(name), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.Chmod(d.path(name), 0o777); err != nil { // whatever the umask is
		return err
	}
	if d.fs.enforces(d.dir) {
		if err := d.fs.limit(d.path(name), bytes); err != nil {
			return errors.Join(err, d.removeEmpty(name))
		}
	}
	return sharedfile.SyncDir(d.dir)
}

// grow lets a volume hold so many bytes. A volume that was made without a limit
// has none.
func (d *disk) grow(name string, bytes int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if limit, _, err := d.limited(name); err != nil || limit == 0 {
		return err
	}
	if err := d.fits(name, bytes); err != nil {
		return err
	}
	return d.fs.limit(d.path(name), bytes)
}

// limited returns the limit of a volume, 0 for none, and what it holds, in bytes.
func (d *disk) limited(name string) (limit, used int64, err error) {
	if !d.fs.enforces(d.dir) {
		return 0, 0, nil
	}
	return d.fs.limited(d.path(name))
}

// room returns the size of the disk, and how large one more volume may be, in
// bytes: what is free, less what the volumes with a limit may still take.
func (d *disk) room() (size, free int64, err error) {
	if size, free, err = d.fs.free(d.dir); err != nil || !d.fs.enforces(d.dir) {
		return size, free, err
	}
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return 0, 0, err
	}
	for _, e := range entries {
		limit, used, err := d.fs.limited(d.path(e.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, 0, err
		}
		free -= max(limit-used, 0)
	}
	return size, max(free, 0), nil
}

// fits returns errNoRoom if the disk enforces limits and has no room for one of so
// many bytes. The volume may exist with a smaller one.
func (d *disk) fits(name string, bytes int64) error {
	if !d.fs.enforces(d.dir) {
		return nil
	}
	limit, _, err := d.limited(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, free, err := d.room()
	if further := bytes - limit; err == nil && further > free {
		return fmt.Errorf("%w: %s are free, and %s are needed", errNoRoom, resource.NewQuantity(free, resource.BinarySI), resource.NewQuantity(further, resource.BinarySI))
	}
	return err
}

// remove removes a volume with everything in it. It fails at a mount point.
func (d *disk) remove(name string) error {
	if err := d.unlimit(name); err != nil {
		return err
	}
	return tree.Remove(d.path(name))
}

// unlimit removes the limit of a volume that is about to be removed: the file
// system would remember it.
func (d *disk) unlimit(name string) error {
	limit, _, err := d.limited(name)
	if err == nil && limit != 0 {
		err = d.fs.limit(d.path(name), 0)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// removeEmpty removes the directory of a volume that was never used.
func (d *disk) removeEmpty(name string) error {
	if err := d.unlimit(name); err != nil {
		return err
	}
	if err := unix.Rmdir(d.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &fs.PathError{Op: "rmdir", Path: d.path(name), Err: err}
	}
	return nil
}
