package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// maxLog is how large a cluster's log becomes before a new one is begun.
	maxLog = 16 << 20
	// oldLogs is how many former ones are kept.
	oldLogs = 3
)

// LogFile is where a cluster's log is.
func LogFile(dataDir string) string { return filepath.Join(dataDir, "coracle.log") }

// Log is a bounded log file: once it is large it becomes FILE.1, the former
// FILE.1 becomes FILE.2, and the oldest goes. Several processes may write to
// the same file, each with a Log of its own.
type Log struct {
	path  string
	limit int64
	// moved is told about each file that is written to from now on.
	moved func(*os.File) error

	mu   sync.Mutex // guards file
	file *os.File
}

// OpenLog opens the log at path for appending. moved, which may be nil, is
// called with each file that takes the place of a full one.
func OpenLog(path string, moved func(*os.File) error) (*Log, error) {
	return openLog(path, maxLog, moved)
}

func openLog(path string, limit int64, moved func(*os.File) error) (*Log, error) {
	if moved == nil {
		moved = func(*os.File) error { return nil }
	}
	l := &Log{path: path, limit: limit, moved: moved}
	return l, l.open()
}

func (l *Log) open() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("write the log (choose another place with --data-dir): %w", err)
	}
	l.file = f
	return f.Chmod(0o600)
}

// File is the file that is written to now.
func (l *Log) File() *os.File {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file
}

// Close ends the writing.
func (l *Log) Close() error { return l.File().Close() }

// Write appends to the log. What cannot be moved out of the way is written on:
// a line is worth more than a bound.
func (l *Log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if info, err := l.file.Stat(); err == nil && info.Size()+int64(len(line)) > l.limit {
		_ = l.rotate()
	}
	return l.file.Write(line)
}

// rotate begins a new file, or goes on with the one that another process has
// begun meanwhile.
func (l *Log) rotate() error {
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
		for n := oldLogs; n > 0; n-- {
			older := fmt.Sprintf("%s.%d", l.path, n)
			newer := fmt.Sprintf("%s.%d", l.path, n-1)
			if n == 1 {
				newer = l.path
			}
			if err := os.Rename(newer, older); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	if err := l.open(); err != nil {
		return err
	}
	return l.moved(l.file)
}
