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
	// maxFile is how large a log becomes before a new one is begun.
	maxFile = 16 << 20
	// oldFiles is how many former ones are kept.
	oldFiles = 3
)

// File is a bounded log file: once it is large it becomes FILE.1, the former
// FILE.1 becomes FILE.2, and the oldest goes. Several processes may write to
// the same file, each with a File of its own.
type File struct {
	path  string
	limit int64
	// moved is told about each file that is written to from now on.
	moved func(*os.File) error

	mu   sync.Mutex // guards file
	file *os.File
}

// OpenFile opens the log at path for appending. moved, which may be nil, is
// called with each file that takes the place of a full one.
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

// File is the file that is written to now.
func (l *File) File() *os.File {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file
}

// Close ends the writing.
func (l *File) Close() error { return l.File().Close() }

// Write appends to the log. What cannot be moved out of the way is written on:
// a line is worth more than a bound.
func (l *File) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if info, err := l.file.Stat(); err == nil && info.Size()+int64(len(line)) > l.limit {
		_ = l.rotate()
	}
	return l.file.Write(line)
}

// rotate begins a new file, or goes on with the one that another process has
// begun meanwhile.
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

// shift makes newest PATH.1, and each former file one older.
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

// Trim bounds the log of a program that goes on writing to the open file,
// which must be open for appending: what a large one holds is copied to FILE.1,
// and the file emptied. Lines that are written between the two are lost. One
// that is missing or small is left alone.
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
	if err != nil { // on a full disk, above all
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
