package files

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/mountinfo"
	"github.com/coracle-io/coracle/internal/sharedfile"
)

// OS is the operating system's file system and mount table.
type OS struct{}

var (
	_ FS      = OS{}
	_ Mounter = OS{}
)

// MkdirAll implements FS. The last directory gets exactly the permissions perm,
// regardless of the umask.
func (OS) MkdirAll(path string, perm fs.FileMode) error {
	if err := os.MkdirAll(path, perm); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() == perm.Perm() {
		return err
	}
	return os.Chmod(path, perm)
}

// WriteFile implements FS. The file gets exactly the permissions perm,
// regardless of the umask.
func (OS) WriteFile(path string, data []byte, perm fs.FileMode) error {
	if err := os.WriteFile(path, data, perm); err != nil {
		return err
	}
	return os.Chmod(path, perm)
}

// MakeMarked implements FS. It makes the directory under another name, which one that was
// killed may have left.
func (OS) MakeMarked(dir, name string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	parent, err := os.OpenRoot(filepath.Dir(dir))
	if err != nil {
		return err
	}
	defer func() { _ = parent.Close() }()
	final := filepath.Base(dir)
	making := final + name
	if err := parent.Mkdir(making, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	made, err := parent.OpenRoot(making)
	if err != nil {
		return err
	}
	defer func() { _ = made.Close() }()
	if err := errors.Join(writeMark(made, name, data), made.Chmod(".", 0o755)); err != nil {
		return err
	}
	return parent.Rename(making, final)
}

// AddMark implements FS.
func (m OS) AddMark(dir, name string, data []byte) error {
	if raw, err := m.ReadBeneath(dir, name, int64(len(data))); err == nil && bytes.Equal(raw, data) {
		return nil
	}
	parent, err := os.OpenRoot(filepath.Dir(dir))
	if err != nil {
		return err
	}
	defer func() { _ = parent.Close() }()
	at, err := parent.OpenRoot(filepath.Base(dir))
	if err != nil {
		return err
	}
	defer func() { _ = at.Close() }()
	return writeMark(at, name, data)
}

// writeMark writes a new file, in the place of one of that name.
func writeMark(at *os.Root, name string, data []byte) error {
	if err := at.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	mark, err := at.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = mark.Write(data)
	return errors.Join(err, mark.Chmod(0o644), mark.Close())
}

// Replace implements FS.
func (m OS) Replace(path string, data []byte, perm fs.FileMode) error {
	return m.replace(path, sharedfile.Content{Data: data, Mode: perm, Durable: true})
}

// ReplaceUnsynced implements FS.
func (m OS) ReplaceUnsynced(path string, data []byte, perm fs.FileMode) error {
	return m.replace(path, sharedfile.Content{Data: data, Mode: perm})
}

func (m OS) replace(path string, content sharedfile.Content) error {
	if info, err := os.Lstat(path); err == nil && info.Mode() == content.Mode && info.Size() == int64(len(content.Data)) {
		if now, err := m.ReadFile(path, info.Size()); err == nil && bytes.Equal(now, content.Data) {
			return nil
		}
	}
	return sharedfile.Replace(path, content)
}

// Rename implements FS.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Symlink implements FS.
func (OS) Symlink(target, path string) error { return os.Symlink(target, path) }

// Readlink implements FS.
func (OS) Readlink(path string) (string, error) { return os.Readlink(path) }

// Stat implements FS.
func (OS) Stat(path string) (fs.FileMode, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Mode(), nil
}

// Lstat implements FS.
func (OS) Lstat(path string) (fs.FileMode, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, err
	}
	return info.Mode(), nil
}

// ReadDir implements FS.
func (OS) ReadDir(path string) ([]string, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// Remove implements FS.
func (OS) Remove(path string) error { return os.Remove(path) }

// Chmod implements FS.
func (OS) Chmod(path string, mode fs.FileMode) error { return os.Chmod(path, mode) }

// Lchown implements FS.
func (OS) Lchown(path string, uid, gid int) error { return os.Lchown(path, uid, gid) }

// Watch implements FS by inotify.
func (OS) Watch(path string) (<-chan struct{}, func()) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, func() {}
	}
	if err := watcher.Add(path); err != nil {
		_ = watcher.Close()
		return nil, func() {}
	}
	changed := make(chan struct{}, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		notify(changed, watcher.Events, watcher.Errors)
	}()
	return changed, func() {
		_ = watcher.Close()
		<-done
	}
}

// notify sends on changed for each event, until events is closed. It treats
// errors like events: after an overflow the changes are unknown, and the
// watcher blocks until the error is received.
func notify(changed chan<- struct{}, events <-chan fsnotify.Event, errs <-chan error) {
	for {
		select {
		case _, ok := <-events:
			if !ok {
				return
			}
		case _, ok := <-errs:
			if !ok {
				errs = nil
				continue
			}
		}
		select {
		case changed <- struct{}{}:
		default:
		}
	}
}

// Mount implements Mounter.
func (OS) Mount(source, target, fstype string, options []string) error {
	var flags uintptr
	var data []string
	for _, o := range options {
		switch o {
		case "bind":
			flags |= unix.MS_BIND
		case "rbind":
			flags |= unix.MS_BIND | unix.MS_REC
		case "ro":
			flags |= unix.MS_RDONLY
		case "nosuid":
			flags |= unix.MS_NOSUID
		case "nodev":
			flags |= unix.MS_NODEV
		case "noexec":
			flags |= unix.MS_NOEXEC
		case "noatime":
			flags |= unix.MS_NOATIME
		case "nodiratime":
			flags |= unix.MS_NODIRATIME
		case "relatime":
			flags |= unix.MS_RELATIME
		case "shared":
			flags |= unix.MS_SHARED
		case "rw":
		case "remount":
			flags |= unix.MS_REMOUNT
		default:
			data = append(data, o)
		}
	}
	if err := unix.Mount(source, target, fstype, flags, strings.Join(data, ",")); err != nil {
		return fmt.Errorf("mount %s on %s: %w", source, target, err)
	}
	return nil
}

// BindBeneath implements Mounter. The kernel resolves sub below root, and
// BindBeneath mounts the open file, so that nothing can be exchanged between
// the check and the mount.
func (m OS) BindBeneath(root, sub, target string, readOnly bool) error {
	beneath, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer func() { _ = beneath.Close() }()
	if _, err := beneath.Stat(sub); errors.Is(err, fs.ErrNotExist) {
		if err := makeBeneath(beneath, sub); err != nil {
			return err
		}
	}
	f, err := openBeneath(root, sub)
	if err != nil {
		return fmt.Errorf("subPath %q of %s: %w", sub, root, err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return err
	}
	if info.IsDir() {
		err = os.MkdirAll(target, 0o750)
	} else {
		err = os.WriteFile(target, nil, 0o640)
	}
	if err != nil {
		return err
	}
	options := []string{"bind"}
	if err := m.Mount("/proc/self/fd/"+strconv.Itoa(int(f.Fd())), target, "", options); err != nil {
		return err
	}
	if readOnly {
		return m.Mount("none", target, "", []string{"bind", "remount", "ro"})
	}
	return nil
}

// makeBeneath creates the missing directories of sub with the permissions of
// root, the setuid, setgid and sticky bits among them.
func makeBeneath(root *os.Root, sub string) error {
	info, err := root.Stat(".")
	if err != nil {
		return err
	}
	path := ""
	for _, name := range strings.Split(filepath.Clean(sub), "/") {
		path = filepath.Join(path, name)
		switch err := root.Mkdir(path, info.Mode().Perm()); {
		case errors.Is(err, fs.ErrExist):
		case err != nil:
			return err
		default:
			if err := root.Chmod(path, info.Mode()&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky)); err != nil {
				return err
			}
		}
	}
	return nil
}

// openBeneath opens sub for mounting. It follows links that stay below root.
func openBeneath(root, sub string) (*os.File, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(dir) }()
	fd, err := openat2(dir, sub, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), sub), nil
}

// Unmount implements Mounter.
func (OS) Unmount(target string) error {
	err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EBUSY) {
		// What was propagated from elsewhere to below target stays there.
		if err = unix.Mount("none", target, "", unix.MS_PRIVATE|unix.MS_REC, ""); err == nil {
			err = unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		}
	}
	if err == nil || errors.Is(err, unix.EINVAL) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("unmount %s: %w", target, err)
}

// Below implements Mounter by /proc/self/mountinfo.
func (OS) Below(path string) ([]string, error) {
	real, err := filepath.EvalSymlinks(path) // mountinfo has resolved paths
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find the mounts below %s: %w", path, err)
	}
	points, err := mountinfo.Points()
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	var out []string
	for _, point := range mountinfo.Below(points, real) {
		out = append(out, filepath.Join(path, strings.TrimPrefix(point, real)))
	}
	slices.SortFunc(out, func(a, b string) int { return len(b) - len(a) })
	return out, nil
}

// IsMountPoint implements Mounter. Kernels before 5.8 do not say it of a path alone.
func (m OS) IsMountPoint(path string) (bool, error) {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT|unix.AT_STATX_DONT_SYNC, 0, &st)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err == nil && st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0:
		return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
	}
	points, err := m.Below(path)
	return slices.Contains(points, path), err
}

// IsShared implements Mounter by /proc/self/mountinfo.
func (OS) IsShared(path string) (bool, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false, fmt.Errorf("find the mount of %s: %w", path, err)
	}
	return mountinfo.Shared(real)
}
