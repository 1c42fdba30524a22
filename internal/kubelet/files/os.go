package files

import (
	"bufio"
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

	"github.com/coracle-io/coracle/internal/sharedfile"
)

// OS is the operating system's file system and mount table.
type OS struct{}

var (
	_ FS      = OS{}
	_ Mounter = OS{}
)

// MkdirAll implements FS; perm holds regardless of the umask for the last element.
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

// WriteFile implements FS; perm holds regardless of the umask.
func (OS) WriteFile(path string, data []byte, perm fs.FileMode) error {
	if err := os.WriteFile(path, data, perm); err != nil {
		return err
	}
	return os.Chmod(path, perm)
}

// Replace implements FS.
func (OS) Replace(path string, data []byte, perm fs.FileMode) error {
	return sharedfile.Replace(path, sharedfile.Content{Data: data, Mode: perm})
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

// Watch implements FS by inotify; without it nothing is told.
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
		tell(changed, watcher.Events, watcher.Errors)
	}()
	return changed, func() {
		_ = watcher.Close()
		<-done
	}
}

// tell reports events until their channel is closed, and errors as well: after
// an overflow nobody knows what has changed, and the watcher waits until it has
// told of it.
func tell(changed chan<- struct{}, events <-chan fsnotify.Event, errs <-chan error) {
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

// BindBeneath implements Mounter: the path is opened below root by the
// kernel's own rules and the open file is mounted, so that nothing can be
// exchanged between the check and the mount.
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

// makeBeneath makes the missing folders of sub with the permissions of the
// root, so that whoever may write there may write here.
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
			if err := root.Chmod(path, info.Mode().Perm()|info.Mode()&fs.ModeSetgid); err != nil {
				return err
			}
		}
	}
	return nil
}

// openBeneath opens sub for mounting, following links that stay below root.
func openBeneath(root, sub string) (*os.File, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(dir) }()
	fd, err := unix.Openat2(dir, sub, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), sub), nil
}

// Unmount implements Mounter; what is not mounted is unmounted already.
func (OS) Unmount(target string) error {
	err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EBUSY) {
		err = unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
	if err == nil || errors.Is(err, unix.EINVAL) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("unmount %s: %w", target, err)
}

// Below implements Mounter by /proc/self/mountinfo.
func (OS) Below(path string) ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var out []string
	for s := bufio.NewScanner(f); s.Scan(); {
		fields := strings.Fields(s.Text())
		if len(fields) < 5 {
			continue
		}
		point := unescape(fields[4])
		if point == path || strings.HasPrefix(point, path+"/") {
			out = append(out, point)
		}
	}
	slices.SortFunc(out, func(a, b string) int { return len(b) - len(a) })
	return out, nil
}

// unescape undoes the kernel's octal escapes of blanks in mount points.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
