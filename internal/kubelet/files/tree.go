package files

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/host/tree"
)

// Pods choose how deep and how wide the trees in their volumes are, and may
// change them at any time. A walk keeps one directory open whatever the depth,
// follows no symbolic link and enters no other mount.

// level is the position of a walk in a directory whose subdirectory it is in.
type level struct {
	device, inode uint64
	cookie        int64 // of the entry after the subdirectory
}

const (
	maxDepth = 100_000
	dotDot   = ".."
)

var errChanged = errors.New("a directory was moved while it was read")

// treeEntry is one file or directory of a walk.
type treeEntry struct {
	dir  int // descriptor of the directory that it is in
	name string
	stat unix.Stat_t
}

// howBeneath is how a walk opens entries: without links and on the same mount.
func howBeneath(flags uint64) *unix.OpenHow {
	return &unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	}
}

// walk calls visit for everything below root, a directory before its content.
// It does not visit what is more than deepest directories down. In that case it
// returns an error after it has visited everything else.
func walk(root string, deepest int, visit func(e *treeEntry) error) error {
	dir, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: root, Err: err}
	}
	defer func() { _ = unix.Close(dir) }()
	enter := func(parent int, name string, flags uint64) error {
		next, err := openat2(parent, name, howBeneath(flags))
		if err == nil {
			_ = unix.Close(dir)
			dir = next
		}
		return err
	}
	var above []level
	var tooDeep error
	cookie := int64(0)
	for {
		child, next, err := list(dir, cookie, visit)
		if err != nil {
			return err
		}
		if child == "" {
			if len(above) == 0 {
				return tooDeep
			}
			parent, err := unix.Openat(dir, dotDot, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			_ = unix.Close(dir)
			dir = parent
			back := above[len(above)-1]
			above = above[:len(above)-1]
			var st unix.Stat_t
			if err := unix.Fstat(dir, &st); err != nil {
				return err
			}
			if st.Dev != back.device || st.Ino != back.inode {
				return errChanged
			}
			cookie = back.cookie
			continue
		}
		if len(above) == deepest {
			tooDeep, cookie = fmt.Errorf("more than %d directories inside one another", deepest), next
			continue
		}
		var st unix.Stat_t
		if err := unix.Fstat(dir, &st); err != nil {
			return err
		}
		switch err := enter(dir, child, unix.O_RDONLY|unix.O_DIRECTORY); {
		case err == nil:
			above, cookie = append(above, level{st.Dev, st.Ino, next}), 0
		case errors.Is(err, unix.EXDEV), errors.Is(err, unix.ENOENT), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR):
			cookie = next // a mount point, or no longer a directory
		default:
			return err
		}
	}
}

// list visits the entries of a directory, beginning at a cookie, up to the
// first directory among them. It returns the name of that directory and the
// cookie after it, or "" at the end.
func list(dir int, cookie int64, visit func(e *treeEntry) error) (child string, next int64, err error) {
	if _, err := unix.Seek(dir, cookie, unix.SEEK_SET); err != nil {
		return "", 0, err
	}
	buffer := make([]byte, 16<<10)
	for {
		n, err := unix.Getdents(dir, buffer)
		if errors.Is(err, unix.ENOENT) {
			return "", 0, nil // the directory was removed
		}
		if err != nil || n == 0 {
			return "", 0, err
		}
		for rest := buffer[:n]; len(rest) > 0; {
			// inode uint64, cookie int64, length uint16, type uint8, name, 0
			length := binary.NativeEndian.Uint16(rest[16:])
			next = int64(binary.NativeEndian.Uint64(rest[8:]))
			name := unix.ByteSliceToString(rest[19:length])
			rest = rest[length:]
			if name == "." || name == dotDot {
				continue
			}
			e := &treeEntry{dir: dir, name: name}
			if err := unix.Fstatat(dir, name, &e.stat, unix.AT_SYMLINK_NOFOLLOW); errors.Is(err, unix.ENOENT) {
				continue
			} else if err != nil {
				return "", 0, err
			}
			if err := visit(e); err != nil {
				return "", 0, err
			}
			if e.stat.Mode&unix.S_IFMT == unix.S_IFDIR {
				return name, next, nil
			}
		}
	}
}

// usageTime bounds how long one tree is counted. usageTries is how often
// counting is started when directories are moved during it.
const (
	usageTime  = 5 * time.Second
	usageTries = 3
)

// Usage implements FS. Files that are removed while Usage runs may not be
// counted.
func (OS) Usage(path string) (bytes, inodes int64, err error) { return usage(path, maxDepth) }

func usage(path string, deepest int) (bytes, inodes int64, err error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	} else if err != nil {
		return 0, 0, &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return st.Blocks * 512, 1, nil
	}
	end := time.Now().Add(usageTime)
	for range usageTries {
		counted, found := st.Blocks*512, int64(1)
		err = walk(path, deepest, func(e *treeEntry) error {
			counted += e.stat.Blocks * 512
			if found++; found%1024 == 0 && time.Now().After(end) {
				return fmt.Errorf("counting %s takes longer than %v", path, usageTime)
			}
			return nil
		})
		bytes, inodes = max(bytes, counted), max(inodes, found)
		if !errors.Is(err, errChanged) {
			break
		}
	}
	return bytes, inodes, err
}

// Share implements FS.
func (OS) Share(root string, gid int, readOnly bool, visited func()) error {
	return shareTree(root, gid, readOnly, maxDepth, visited)
}

// shareTree changes root last: what is below it counts as shared once root is (see
// Shared), also after a kill half way.
func shareTree(root string, gid int, readOnly bool, deepest int, visited func()) error {
	top, err := unix.Open(root, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: root, Err: err}
	}
	refused, reason := 0, error(nil)
	change := func(fd int) error {
		if visited != nil {
			visited()
		}
		err := share(fd, gid, readOnly)
		if !isRefusal(err) {
			return err
		}
		refused++
		reason = err
		return nil
	}
	err = walk(root, deepest, func(e *treeEntry) error {
		fd, err := openat2(e.dir, e.name, howBeneath(unix.O_PATH))
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EXDEV) {
			return nil // gone, a link, or a mount
		}
		if err != nil {
			return err
		}
		return change(fd)
	})
	if err != nil {
		_ = unix.Close(top)
		return err
	}
	err = change(top)
	if refused > 0 {
		klog.Background().Error(reason, "Files of a volume cannot be given to the group of the pod", "path", root, "group", gid, "files", refused)
	}
	return err
}

// isRefusal reports whether a file cannot have another group or mode, such as one on a
// server that knows no root, or on a file system that is read-only. A pod may not need
// that.
func isRefusal(err error) bool {
	return slices.ContainsFunc([]error{unix.EPERM, unix.EACCES, unix.EROFS, unix.EINVAL, unix.EOPNOTSUPP}, func(e error) bool { return errors.Is(err, e) })
}

// Group implements FS.
func (OS) Group(path string) (int, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return int(st.Gid), nil
}

// Shared implements FS.
func (OS) Shared(root string, gid int, readOnly bool) (bool, error) {
	var st unix.Stat_t
	if err := unix.Stat(root, &st); err != nil {
		return false, &fs.PathError{Op: "stat", Path: root, Err: err}
	}
	mode := st.Mode & 0o7777
	return int(st.Gid) == gid && shared(mode, st.Mode&unix.S_IFMT == unix.S_IFDIR, readOnly) == mode, nil
}

// share changes the group and the mode of an open file, and closes it. It
// changes the file that was opened, even if its name now belongs to another. A file
// that cannot change its group may change its mode.
func share(fd, gid int, readOnly bool) error {
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	failed := unix.Fchownat(fd, "", -1, gid, unix.AT_EMPTY_PATH)
	if failed != nil && !isRefusal(failed) || st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return failed
	}
	if err := unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), shared(st.Mode&0o7777, st.Mode&unix.S_IFMT == unix.S_IFDIR, readOnly)); err != nil {
		return err
	}
	return failed
}

// shared returns the mode of a file for a pod's group.
func shared(mode uint32, directory, readOnly bool) uint32 {
	if readOnly {
		mode |= 0o440
	} else {
		mode |= 0o660
	}
	if directory {
		mode |= unix.S_ISGID | 0o110
	}
	return mode
}

// RemoveAll implements FS.
func (OS) RemoveAll(path string) error { return tree.Remove(path) }
