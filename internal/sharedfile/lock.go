package sharedfile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

const (
	// lockRetry is the interval at which a lock that others hold is retried.
	lockRetry = 20 * time.Millisecond
	// namingTime bounds how long Acquire waits for a holder's record.
	namingTime = time.Second
	maxHolder  = 4096 // bound of a lock file's content, in bytes
)

// Holder is the process that holds a lock.
type Holder struct {
	Cluster string `json:"cluster,omitzero"`
	PID     int    `json:"pid"`
	// PIDStart is the process's start time in clock ticks since boot.
	PIDStart uint64 `json:"pidStart"`
}

func (h Holder) String() string {
	switch {
	case h.PID == 0:
		return "another process"
	case h.Cluster == "":
		return fmt.Sprintf("process %d", h.PID)
	}
	return fmt.Sprintf("cluster %s (process %d)", h.Cluster, h.PID)
}

// HeldError reports that another process holds a lock.
type HeldError struct {
	Path   string
	Holder Holder
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("%s is locked by %s: let it finish, or end it, first", e.Path, e.Holder)
}

// Lock is a lock that this process holds until it releases it or ends. It is a
// flock(2) of a file that only its owner can open. A process that inherits the
// file holds the lock as well.
type Lock struct{ file *os.File }

// Acquire locks a file, which it creates if it is missing. It waits for another
// holder up to timeout, and then returns a HeldError. A holder records itself
// just after it has the lock, so Acquire waits up to a second for the record
// even if timeout is shorter. The wait is the sum of the intervals between
// attempts: a machine that stops for seconds leaves the holder no time to finish,
// and does not end it. The holder may remove the file; waiting processes create
// it again.
func Acquire(ctx context.Context, path string, holder Holder, timeout time.Duration) (*Lock, error) {
	for waited := time.Duration(0); ; waited += lockRetry {
		l, err := try(path, holder)
		if err == nil && l != nil {
			return l, nil
		}
		var held *HeldError
		if err != nil && !errors.As(err, &held) {
			return nil, err
		}
		wait := timeout
		if held != nil && held.Holder.PID == 0 {
			wait = max(wait, namingTime)
		}
		if err != nil && waited > wait {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		case <-time.After(lockRetry):
		}
	}
}

// try tries to lock the file once. It returns nil if the file was removed
// before it was locked.
func try(path string, holder Holder) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	l := &Lock{file: f}
	if err := ownFile(f); err != nil {
		return nil, errors.Join(err, l.Release())
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = &HeldError{Path: path, Holder: readHolder(f)}
		}
		return nil, errors.Join(err, l.Release())
	}
	if there, err := l.isAt(path); !there || err != nil {
		return nil, errors.Join(err, l.Release())
	}
	l.SetHolder(holder)
	return l, nil
}

// ownFile returns an error if other users can open a file that this process
// relies on.
func ownFile(f *os.File) error {
	var st syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if st.Mode&syscall.S_IFMT != syscall.S_IFREG || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is not a file of this user: remove it", f.Name())
	}
	if st.Mode&0o077 != 0 {
		return f.Chmod(0o600)
	}
	return nil
}

func (l *Lock) isAt(path string) (bool, error) {
	mine, err := l.file.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(mine, there), err
}

// SetHolder records who holds the lock, for messages of other processes, as
// when a process has inherited it. Errors, as of a full disk, are ignored. It
// does not write what the file already contains, so that frequent locking does
// not keep the disk busy.
func (l *Lock) SetHolder(holder Holder) {
	if readHolder(l.file) == holder {
		return
	}
	raw, err := json.Marshal(holder)
	if err == nil && l.file.Truncate(0) == nil {
		_, _ = l.file.WriteAt(append(raw, '\n'), 0)
	}
}

// ReadHolder returns the holder that a lock file names, which may be empty. It
// returns an error if the file is not a lock.
func ReadHolder(path string) (Holder, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return Holder{}, err
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.NewSectionReader(f, 0, maxHolder))
	if err != nil || len(raw) == 0 {
		return Holder{}, err
	}
	var h Holder
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&h); err != nil || h.PID <= 0 {
		return Holder{}, fmt.Errorf("%s is no lock of Coracle", path)
	}
	return h, nil
}

func readHolder(f *os.File) Holder {
	var h Holder
	raw, err := io.ReadAll(io.NewSectionReader(f, 0, maxHolder))
	if err != nil || json.Unmarshal(raw, &h) != nil {
		return Holder{}
	}
	return h
}

// File returns the locked file, for a child process that shall hold the lock as
// well.
func (l *Lock) File() *os.File { return l.file }

// Release releases the lock of this process.
func (l *Lock) Release() error { return l.file.Close() }
