package sharedfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// OwnershipError reports that other users may have written, or can replace, a
// file that this process relies on.
type OwnershipError struct {
	Path   string
	UID    int // whose it is
	Shared bool
}

func (e *OwnershipError) Error() string {
	if e.Shared {
		return fmt.Sprintf("%s can be changed by other users, so that it may be theirs: look at what is in it, then close it to them with chmod go-w %s", e.Path, e.Path)
	}
	return fmt.Sprintf("%s belongs to user %d, who could have put anything there: look at what is in it, then make it your own with chown -R %d %s, or choose another directory", e.Path, e.UID, os.Geteuid(), e.Path)
}

// CheckOwner returns an OwnershipError if users other than this process's and
// root can change a file or directory.
func CheckOwner(path string, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return fmt.Errorf("%s: cannot determine the owner", path)
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return &OwnershipError{Path: path, UID: int(st.Uid)}
	case info.Mode()&fs.ModeSymlink == 0 && info.Mode().Perm()&0o022 != 0:
		return &OwnershipError{Path: path, UID: int(st.Uid), Shared: true}
	}
	return nil
}

// Closed reports whether a directory belongs to this process's user or root, and
// others cannot reach what is in it.
func Closed(dir string) bool {
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() || info.Mode().Perm()&0o077 != 0 {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && (st.Uid == 0 || int(st.Uid) == os.Geteuid())
}

// CheckOwnerBelow is CheckOwner for what is below a Closed directory. The group may
// have the right to write, as files have that are made with the umask 002.
func CheckOwnerBelow(path string, info fs.FileInfo) error {
	err := CheckOwner(path, info)
	if shared := (*OwnershipError)(nil); errors.As(err, &shared) && shared.Shared && info.Mode().Perm()&0o002 == 0 {
		return nil
	}
	return err
}

// ErrTooLarge reports that a file is larger than its reader allows.
var ErrTooLarge = errors.New("the file is too large")

// ReadOwn reads a regular file of at most limit bytes that only this process's
// user and root can change. It does not follow links or block on pipes.
func ReadOwn(path string, limit int64) ([]byte, error) { return readChecked(path, limit, CheckOwner) }

// ReadOwnBelow is ReadOwn for a file below a Closed directory, with CheckOwnerBelow.
func ReadOwnBelow(path string, limit int64) ([]byte, error) {
	return readChecked(path, limit, CheckOwnerBelow)
}

// readChecked reads a regular file of at most limit bytes of which check says that
// it can be trusted.
func readChecked(path string, limit int64, check func(string, fs.FileInfo) error) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	if err := check(path, info); err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(raw)) > limit {
		err = fmt.Errorf("%s: %w (more than %d bytes)", path, ErrTooLarge, limit)
	}
	return raw, err
}
