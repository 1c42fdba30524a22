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
	// lockAgain is how often a lock that others hold is tried.
	lockAgain = 20 * time.Millisecond
	maxHolder = 4096 // bytes that are read of who holds a lock
)

// Holder says who holds a lock.
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

// HeldError says that a lock is held by another process.
type HeldError struct {
	Path   string
	Holder Holder
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("%s is locked by %s: let it finish, or end it, first", e.Path, e.Holder)
}

// Lock is a lock that this process holds until it releases it or ends. It is
// a flock(2) of a file that only its owner can open; whoever inherits the file
// holds it as well.
type Lock struct{ file *os.File }

// Acquire locks a file, made if it is missing, and waits for others no longer
// than patience: a HeldError says who they are then. The file may be removed
// by its holder; who waited for it takes the next one.
func Acquire(ctx context.Context, path string, holder Holder, patience time.Duration) (*Lock, error) {
	deadline := time.Now().Add(patience)
	for {
		l, err := try(path, holder)
		if err == nil && l != nil {
			return l, nil
		}
		var held *HeldError
		if err != nil && (!errors.As(err, &held) || time.Now().After(deadline)) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		case <-time.After(lockAgain):
		}
	}
}

// try returns nothing if the file was removed meanwhile.
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
	l.Tell(holder)
	return l, nil
}

// ownFile checks that nobody else can open a file that this process relies on.
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

// Tell notes who holds the lock, for the messages of others, as when a process
// has inherited it. On a full disk they do without; what would make room must
// not fail for that. What the file says already is not written again: a process
// that takes a lock often would keep its disk busy.
func (l *Lock) Tell(holder Holder) {
	if readHolder(l.file) == holder {
		return
	}
	raw, err := json.Marshal(holder)
	if err == nil && l.file.Truncate(0) == nil {
		_, _ = l.file.WriteAt(append(raw, '\n'), 0)
	}
}

// ReadHolder returns what the file of a lock says. It is an error if the file is
// that of no lock; one that says nothing may be.
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

// File is the locked file, for a child process that shall hold the lock too.
func (l *Lock) File() *os.File { return l.file }

// Release gives the lock up, as far as this process holds it.
func (l *Lock) Release() error { return l.file.Close() }
