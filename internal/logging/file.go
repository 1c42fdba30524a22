package logging

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// maxFile is the size at which a log is rotated, in bytes.
	maxFile = 16 << 20
	// oldFiles is how many rotated files are kept.
	oldFiles = 3
)

// File is a bounded log file. A full file becomes FILE.1, the former FILE.1
// becomes FILE.2, and the oldest is removed. Several processes may write to one
// path, each with its own File.
type File struct {
	path  string
	limit int64
	// moved is called with each file that is written to from now on.
	moved func(*os.File) error

	mu   sync.Mutex // guards file
	file *os.File
}

// OpenFile opens the log at path for appending. moved, if not nil, is called
// with each file that replaces a full one.
func OpenFile(path string, moved func(*os.File) error) (*File, error) {
	return openFile(path, maxFile, moved)
}

func openFile(path string, limit int64, moved func(*os.File) error) (*File, error) {
	if moved == nil {
		moved = func(*os.File) error { return nil }
	}
	l := &File{path: path, limit: limit, moved: moved}
	return l, l.open()
}

func (l *File) open() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("write the log (choose another place with --data-dir): %w", err)
	}
	l.file = f
	return f.Chmod(0o600)
}

// File returns the file that is written to now.
func (l *File) File() *os.File {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file
}

// Close closes the file.
func (l *File) Close() error { return l.File().Close() }

// Write appends to the log. If a full file cannot be rotated, Write appends to
// it anyway: lines matter more than the bound.
func (l *File) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if info, err := l.file.Stat(); err == nil && info.Size()+int64(len(line)) > l.limit {
		_ = l.rotate()
	}
	return l.file.Write(line)
}

// rotate starts a new file, or uses the one that another process has started.
func (l *File) rotate() error {
	full := l.file
	if err := unix.Flock(int(full.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	defer func() {
		if l.file == full {
			_ = unix.Flock(int(full.Fd()), unix.LOCK_UN)
			return
		}
		_ = full.Close() // unlocks
	}()
	mine, err := full.Stat()
	if err != nil {
		return err
	}
	if there, err := os.Lstat(l.path); err == nil && os.SameFile(mine, there) {
		if err := shift(l.path, l.path); err != nil {
			return err
		}
	}
	if err := l.open(); err != nil {
		return err
	}
	return l.moved(l.file)
}

// shift makes newest PATH.1, and renames each older file to the next number.
func shift(path, newest string) error {
	for n := oldFiles; n > 0; n-- {
		newer := fmt.Sprintf("%s.%d", path, n-1)
		if n == 1 {
			newer = newest
		}
		if err := os.Rename(newer, fmt.Sprintf("%s.%d", path, n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Trim bounds the log of another program, which must have the file open for
// appending. It copies a large file to FILE.1 and truncates it. Lines that are
// written in between are lost. A small or missing file is no error.
func Trim(path string) error { return trim(path, maxFile) }

func trim(path string, limit int64) error {
	log, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	if info, err := log.Stat(); err != nil || info.Size() <= limit {
		return err
	}
	kept := path + ".new"
	err = keepEnd(log, kept, limit)
	if err == nil {
		err = shift(path, kept)
	}
	if err != nil { // as on a full disk
		err = fmt.Errorf("keep the end of %s: %w", path, errors.Join(err, os.RemoveAll(kept)))
	}
	return errors.Join(err, log.Truncate(0))
}

// keepEnd copies the last limit bytes of a log.
func keepEnd(log *os.File, path string, limit int64) error {
	info, err := log.Stat()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, io.NewSectionReader(log, max(0, info.Size()-limit), limit))
	return errors.Join(err, f.Close())
}
