package sharedfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// OwnershipError says that somebody else may have written, or can replace, what
// this process would rely on.
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

// CheckOwner is an OwnershipError if anybody but this process's user and root
// can change a file or directory.
func CheckOwner(path string, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return fmt.Errorf("%s: nobody knows whose it is", path)
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return &OwnershipError{Path: path, UID: int(st.Uid)}
	case info.Mode()&fs.ModeSymlink == 0 && info.Mode().Perm()&0o022 != 0:
		return &OwnershipError{Path: path, UID: int(st.Uid), Shared: true}
	}
	return nil
}

// ErrTooLarge says that a file is larger than its reader takes.
var ErrTooLarge = errors.New("the file is too large")

// ReadOwn reads a regular file of at most limit bytes that nobody but this
// process's user and root can change. It follows no link and waits for no pipe.
func ReadOwn(path string, limit int64) ([]byte, error) {
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
	if err := CheckOwner(path, info); err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(raw)) > limit {
		err = fmt.Errorf("%s: %w (more than %d bytes)", path, ErrTooLarge, limit)
	}
	return raw, err
}
