// Package files is the kubelet's seam to the file system and its mounts,
// with an implementation on the operating system and one in memory.
package files

import (
	"io/fs"
)

// MaxHostFile bounds, in bytes, the host's own files that pods get a copy of.
const MaxHostFile = 1 << 20

// FS is what the kubelet does with files. Paths are absolute; errors are those
// of package os (errors.Is with fs.ErrNotExist and so on works).
type FS interface {
	MkdirAll(path string, perm fs.FileMode) error
	WriteFile(path string, data []byte, perm fs.FileMode) error
	// Replace writes a file in one step: after a failure it is as it was.
	Replace(path string, data []byte, perm fs.FileMode) error
	// ReadFile reads a regular file of at most limit bytes at a path that no
	// pod can change; it follows symbolic links.
	ReadFile(path string, limit int64) ([]byte, error)
	// ReadBeneath reads a regular file of at most limit bytes below a root
	// that pods can write to. Symbolic links that leave root are errors.
	ReadBeneath(root, path string, limit int64) ([]byte, error)
	// TailBeneath reads the last limit bytes of a regular file below a root
	// that pods can write to. It follows no symbolic links.
	TailBeneath(root, path string, limit int64) ([]byte, error)
	Rename(from, to string) error
	Symlink(target, path string) error
	Readlink(path string) (string, error)
	// Stat follows symbolic links, Lstat does not.
	Stat(path string) (fs.FileMode, error)
	Lstat(path string) (fs.FileMode, error)
	// ReadDir returns the names in a directory, sorted.
	ReadDir(path string) ([]string, error)
	Remove(path string) error
	// RemoveAll removes a tree however deep it is. A mount in it is an error.
	RemoveAll(path string) error
	Chmod(path string, mode fs.FileMode) error
	// Lchown leaves an id of -1 as it is.
	Lchown(path string, uid, gid int) error
	// Share gives everything below root to a group that may read it, and write
	// to it unless readOnly. It changes nothing that a link points to, nor
	// what is on another mount.
	Share(root string, gid int, readOnly bool) error
	// Usage returns the bytes and inodes in use below path, on the same mount.
	// With an error it returns what was counted so far.
	Usage(path string) (bytes, inodes int64, err error)
	// Watch says now and then that something below a directory may have
	// changed, until stop is called. A nil channel never does.
	Watch(path string) (changed <-chan struct{}, stop func())
}

// Mounter mounts file systems.
type Mounter interface {
	// Mount mounts source on target as mount(8) would with -t and -o.
	Mount(source, target, fstype string, options []string) error
	// BindBeneath bind-mounts the path sub below root on target. It creates
	// sub as a directory with root's permissions if it is missing and never
	// follows a link out of root.
	BindBeneath(root, sub, target string, readOnly bool) error
	Unmount(target string) error
	// Below lists the mount points at or below path, deepest first.
	Below(path string) ([]string, error)
}
