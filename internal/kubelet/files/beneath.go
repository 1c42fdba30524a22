package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/beneath"
)

// Errors of files that pods can change.
var (
	// ErrTooLarge reports a file with more bytes than its reader accepts.
	ErrTooLarge = errors.New("the file is too large")
	// ErrNotRegular reports a path that is not a regular file: a link,
	// directory, device, socket or pipe.
	ErrNotRegular = errors.New("not a regular file")
)

// OpenBeneath opens the regular file path below root for reading. It follows
// symbolic links that stay below root. Nothing below root is trusted: the kernel
// keeps the resolution of the path below root. Pipes and devices are never
// opened, so the call does not block and has no side effects.
func OpenBeneath(root, path string) (*os.File, error) {
	return openResolved(root, path, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_MAGICLINKS)
}

// OpenBeneathNoSymlinks opens a file as OpenBeneath does, and follows no symbolic
// links below root.
func OpenBeneathNoSymlinks(root, path string) (*os.File, error) {
	return openResolved(root, path, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_MAGICLINKS|unix.RESOLVE_NO_SYMLINKS)
}

// openResolved opens the regular file path below root with flags of openat2.
func openResolved(root, path string, resolve uint64) (*os.File, error) {
	if filepath.IsAbs(path) {
		return nil, &fs.PathError{Op: "open", Path: path, Err: unix.EXDEV}
	}
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: root, Err: err}
	}
	defer func() { _ = unix.Close(dir) }()
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: resolve}
	return openRegular(filepath.Join(root, path), func() (int, error) { return openat2(dir, path, &how) })
}

// openat2 retries resolutions that were interrupted by a rename elsewhere.
func openat2(dir int, path string, how *unix.OpenHow) (fd int, err error) {
	const attempts = 32
	for range attempts {
		if fd, err = unix.Openat2(dir, path, how); !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return fd, err
}

// openRegular opens the file that locate found for reading, if it is a regular
// file. locate returns a descriptor opened with O_PATH.
func openRegular(path string, locate func() (int, error)) (*os.File, error) {
	fail := func(err error) (*os.File, error) { return nil, &fs.PathError{Op: "open", Path: path, Err: err} }
	found, err := locate()
	if err != nil {
		return fail(err)
	}
	defer func() { _ = unix.Close(found) }()
	var st unix.Stat_t
	if err := unix.Fstat(found, &st); err != nil {
		return fail(err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fail(ErrNotRegular)
	}
	// Without O_NONBLOCK a lease on the file could block the reader.
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(found), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail(err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// ReadFile implements FS.
func (OS) ReadFile(path string, limit int64) ([]byte, error) {
	f, err := openRegular(path, func() (int, error) { return unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, err
	}
	return readAll(f, limit)
}

// ReadBeneath implements FS.
func (OS) ReadBeneath(root, path string, limit int64) ([]byte, error) {
	f, err := OpenBeneath(root, path)
	if err != nil {
		return nil, err
	}
	return readAll(f, limit)
}

// readAll reads f to its end and closes it.
func readAll(f *os.File, limit int64) ([]byte, error) {
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(raw)) > limit {
		return nil, fmt.Errorf("read %s: %w: more than %d bytes", f.Name(), ErrTooLarge, limit)
	}
	return raw, err
}

// TailBeneath implements FS.
func (OS) TailBeneath(root, path string, limit int64) ([]byte, error) {
	f, err := OpenBeneathNoSymlinks(root, path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	raw := make([]byte, min(limit, info.Size()))
	n, err := f.ReadAt(raw, info.Size()-int64(len(raw)))
	if errors.Is(err, io.EOF) {
		err = nil // the file shrank after Stat
	}
	return raw[:n], err
}

// Beneath returns path relative to root. It reports false for a path that is
// not below root.
func Beneath(root, path string) (rest string, ok bool) {
	rest, ok = beneath.Rel(root, path)
	return rest, ok && rest != ""
}
