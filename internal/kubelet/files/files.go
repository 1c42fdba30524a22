// Package files is the kubelet's interface to the file system and its mounts,
// with one implementation on the operating system and one in memory.
package files

import (
	"errors"
	"io"
	"io/fs"
)

// MaxHostFile is the maximum size, in bytes, of the host's files that pods get
// a copy of.
const MaxHostFile = 1 << 20

// FS is a file system. Paths are absolute. Errors match those of package io/fs,
// such as fs.ErrNotExist.
type FS interface {
	MkdirAll(path string, perm fs.FileMode) error
	WriteFile(path string, data []byte, perm fs.FileMode) error
	// MakeMarked makes a directory that all may read, with a file in it, whose parent
	// others may write to. The directory appears with the file, and MakeMarked writes to
	// no file that is there already.
	MakeMarked(dir, name string, data []byte) error
	// AddMark writes a file into a directory that others may write to. One of that name is
	// replaced, unless it has that content. No link is followed out of the directory's
	// parent.
	AddMark(dir, name string, data []byte) error
	// Replace writes a file atomically. After a failure the old file is
	// unchanged. The new one survives a loss of power. A file that has the
	// content already is not written.
	Replace(path string, data []byte, perm fs.FileMode) error
	// ReplaceUnsynced is Replace without waiting for the disk: after a loss of
	// power the file may be missing or incomplete.
	ReplaceUnsynced(path string, data []byte, perm fs.FileMode) error
	// ReadFile reads a regular file of at most limit bytes. No pod may be able
	// to change the path. ReadFile follows symbolic links.
	ReadFile(path string, limit int64) ([]byte, error)
	// ReadBeneath reads a regular file of at most limit bytes below a root that
	// pods can write to. A symbolic link that leads out of root is an error.
	ReadBeneath(root, path string, limit int64) ([]byte, error)
	// TailBeneath reads the last limit bytes of a regular file below a root
	// that pods can write to. It does not follow symbolic links.
	TailBeneath(root, path string, limit int64) ([]byte, error)
	Rename(from, to string) error
	Symlink(target, path string) error
	Readlink(path string) (string, error)
	// Stat follows symbolic links, Lstat does not.
	Stat(path string) (fs.FileMode, error)
	Lstat(path string) (fs.FileMode, error)
	// HoldDevice opens a block device without reading it. It follows symbolic
	// links. id differs from the id of every other device since the machine was
	// started, even if that device had the same number. The kernel gives the
	// number to no other device until held is closed. The error of any other
	// file is ErrNotBlockDevice.
	HoldDevice(path string) (id string, held io.Closer, err error)
	// ReadDir returns the names in a directory, sorted.
	ReadDir(path string) ([]string, error)
	Remove(path string) error
	// RemoveAll removes a tree of any depth. A mount in the tree is an error. A
	// missing path is not.
	RemoveAll(path string) error
	Chmod(path string, mode fs.FileMode) error
	// Lchown changes the owner and the group of a file, and does not follow
	// symbolic links. An id of -1 is left unchanged.
	Lchown(path string, uid, gid int) error
	// Group returns the group of a file. It follows symbolic links.
	Group(path string) (gid int, err error)
	// Share lets a group read everything below root, and write to it unless
	// readOnly. It does not change the targets of symbolic links and does not
	// enter other mounts. Files that the file system does not let it change are left
	// as they are. Root changes last. visited is called for each file; it may be nil.
	Share(root string, gid int, readOnly bool, visited func()) error
	// Shared reports whether Share would not change root itself.
	Shared(root string, gid int, readOnly bool) (bool, error)
	// Usage returns the bytes and inodes in use below path, on the same mount.
	// With an error it returns what was counted so far. A missing path uses
	// nothing.
	Usage(path string) (bytes, inodes int64, err error)
	// Sockets returns the sockets in a directory and in those below it, at most
	// limit of them. It follows no symbolic links and skips names that begin
	// with a dot. A missing directory has none.
	Sockets(path string, limit int) ([]Socket, error)
	// Watch sends on changed when something directly in a directory may have
	// changed, until stop is called. Where changes cannot be observed, changed
	// is nil.
	Watch(path string) (changed <-chan struct{}, stop func())
}

// ErrNotBlockDevice is the error of a file that is not a block device.
var ErrNotBlockDevice = errors.New("not a block device")

// Socket is a UNIX socket in a directory.
type Socket struct {
	Path string
	// ID changes when the socket is removed and created again.
	ID string
}

// Mounter mounts file systems.
type Mounter interface {
	// Mount mounts source on target. fstype and options have the form of mount(8). The
	// option shared alone mounts nothing, and makes the mount on target a shared one.
	Mount(source, target, fstype string, options []string) error
	// BindBeneath bind-mounts the path sub below root on target. If sub is
	// missing, it is created as a directory with root's permissions. No link is
	// followed out of root.
	BindBeneath(root, sub, target string, readOnly bool) error
	// Unmount unmounts target, also if it is in use. What was propagated from elsewhere to
	// below target stays there. A target that is not mounted is not an error.
	Unmount(target string) error
	// Below returns the mount points at or below path, deepest first. path may
	// contain symbolic links; the mount points then begin with path as it is
	// given.
	Below(path string) ([]string, error)
	// IsMountPoint reports whether something is mounted on path, which may be missing.
	// It does not read the list of all mounts, which may be long.
	IsMountPoint(path string) (bool, error)
	// IsShared reports whether what is mounted below path reaches the containers that
	// have path with the propagation Bidirectional or HostToContainer.
	IsShared(path string) (bool, error)
}
