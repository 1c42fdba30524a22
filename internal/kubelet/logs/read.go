package logs

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/pace"
)

// silence is how long a followed log must be without changes before Running is
// called, recheck the period of further calls.
const (
	silence = 100 * time.Millisecond
	recheck = 500 * time.Millisecond
)

// Options select a part of a log, like v1.PodLogOptions.
type Options struct {
	Follow     bool // until the container exits
	Timestamps bool // before each line
	Tail       *int64
	Limit      *int64 // bytes
	Since      time.Time
	// Running reports whether the container runs. It is called only when
	// following.
	Running func(context.Context) (bool, error)
	// Watches bounds how many logs are watched, and how often Running is called for all
	// of them; nil does not.
	Watches *Watches
}

const (
	// maxWatches is how many logs are watched for changes at a time. Each takes an instance
	// of inotify, of which all programs of root have 128 by default. Others are looked at
	// after each silence.
	maxWatches = 32
	// askBurst is how often Running may be called at once for all logs that are followed,
	// and askPeriod how often after that: each is a call of the runtime.
	askBurst, askPeriod = 100, 10 * time.Millisecond
)

// Watches are the logs that somebody follows. The zero value has none. Its methods may be
// called from any goroutine.
type Watches struct {
	open func(dir string) (changes <-chan struct{}, stop func()) // replaces files.OS in tests

	mu    sync.Mutex // guards the following
	count int        // of those that are watched
	asked pace.Pace
}

// add watches a directory until stop is called. changes is nil if it is not watched.
func (w *Watches) add(dir string) (changes <-chan struct{}, stop func()) {
	if w == nil {
		return files.OS{}.Watch(dir)
	}
	if !w.take() {
		return nil, func() {}
	}
	open := w.open
	if open == nil {
		open = files.OS{}.Watch
	}
	changes, end := open(dir)
	return changes, func() {
		end()
		w.mu.Lock()
		w.count--
		w.mu.Unlock()
	}
}

// take counts one more that is watched, and returns false if there are too many.
func (w *Watches) take() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count == maxWatches {
		return false
	}
	w.count++
	return true
}

// mayAsk reports whether Running may be called now.
func (w *Watches) mayAsk() bool {
	if w == nil {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked.Take(time.Now(), askBurst, askPeriod) == 0
}

// Read writes the log at path, in the format of the CRI, to stdout and stderr.
// It skips the lines of a stream whose writer is nil. A followed log is
// followed across rotations. No line is lost unless the reader is a whole file
// behind.
func Read(ctx context.Context, path string, o Options, stdout, stderr io.Writer) error {
	var changes <-chan struct{}
	if o.Follow {
		var stop func()
		changes, stop = o.Watches.add(filepath.Dir(path))
		defer stop()
	}
	f, err := open(ctx, path, o.Tail)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	out := &output{options: &o, stdout: stdout, stderr: stderr, fresh: true}
	for ended := !o.Follow; ; {
		if err := f.drain(ctx, out); err != nil {
			return ignoreFull(err)
		}
		if o.Follow {
			next, err := f.successor(ctx, path)
			if err != nil {
				return err
			}
			if next != nil {
				err := f.drain(ctx, out) // lines that were written between the last read and the rename
				_ = f.Close()
				if f = next; err != nil {
					return ignoreFull(err)
				}
				continue
			}
		}
		if ended {
			return ignoreFull(errors.Join(out.line(f.rest), out.flush()))
		}
		if err := out.flush(); err != nil {
			return err
		}
		if ended, err = quiet(ctx, changes, &o); err != nil {
			return err
		}
	}
}

// quiet blocks until the log may have grown or the container has exited. If
// changes is nil, which is so without inotify, the caller polls.
func quiet(ctx context.Context, changes <-chan struct{}, o *Options) (ended bool, err error) {
	timer := time.NewTimer(silence)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return true, ctx.Err()
		case <-changes:
			return false, nil
		case <-timer.C:
			if o.Watches.mayAsk() {
				if ok, err := o.Running(ctx); err != nil || !ok {
					return true, err
				}
			}
			if changes == nil {
				return false, nil
			}
			timer.Reset(recheck)
		}
	}
}

// file is one file of a log, read line by line.
type file struct {
	*os.File
	lines *bufio.Reader
	rest  []byte // of a line whose end has not been written yet
}

// Split splits the path of a log into the root directory of all logs and the
// rest, POD/CONTAINER/FILE, which pods could change.
func Split(path string) (root, rest string) {
	root = filepath.Dir(filepath.Dir(filepath.Dir(path)))
	rest, _ = files.Beneath(root, path)
	return root, rest
}

// openLog opens one file of a log if it is a regular file.
func openLog(path string) (*os.File, error) {
	root, rest := Split(path)
	return files.OpenBeneathNoSymlinks(root, rest)
}

// open opens a log at its start, or at the last tail lines.
func open(ctx context.Context, path string, tail *int64) (*file, error) {
	f, err := openLog(path)
	if err != nil {
		return nil, err
	}
	if tail != nil {
		at, err := startOfTail(ctx, f, *tail)
		if err == nil {
			_, err = f.Seek(at, io.SeekStart)
		}
		if err != nil {
			_ = f.Close()
			return nil, err
		}
	}
	return &file{File: f, lines: bufio.NewReaderSize(f, 32<<10)}, nil
}

// maxLine is the maximum length of a line of the file. Runtimes split lines at
// 16 KiB; longer lines are not theirs.
const maxLine = 1 << 20

// drain writes the rest of the file.
func (f *file) drain(ctx context.Context, out *output) error {
	for {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		piece, err := f.lines.ReadSlice('\n')
		if err != nil || len(f.rest) > 0 {
			f.rest = append(f.rest, piece...)
			piece = f.rest
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			if len(f.rest) > maxLine {
				f.rest = f.rest[:0] // its next piece is not of the CRI's form either
			}
			continue
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		f.rest = f.rest[:0]
		if err := out.line(piece); err != nil {
			return err
		}
	}
}

// successor opens the file that the runtime writes to now, if it is another one
// and not empty. While it is empty, the runtime may still write to the old one.
func (f *file) successor(ctx context.Context, path string) (*file, error) {
	mine, err := f.Stat()
	if err != nil {
		return nil, err
	}
	now, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (now.Size() == 0 || os.SameFile(mine, now)) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return open(ctx, path, nil)
}

// startOfTail returns the offset of the last n lines.
func startOfTail(ctx context.Context, f io.ReadSeeker, n int64) (int64, error) {
	at, err := f.Seek(0, io.SeekEnd)
	if err != nil || n <= 0 {
		return at, err
	}
	block := make([]byte, 32<<10)
	wanted := n + 1 // the line break before the first line
	for end := true; at > 0; end = false {
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		size := min(at, int64(len(block)))
		if _, err := f.Seek(at-size, io.SeekStart); err != nil {
			return 0, err
		}
		if _, err := io.ReadFull(f, block[:size]); err != nil {
			return 0, err
		}
		if end && block[size-1] != '\n' {
			wanted-- // the last line has no end yet
		}
		for i := size - 1; i >= 0; i-- {
			if block[i] != '\n' {
				continue
			}
			if wanted--; wanted == 0 {
				return at - size + i + 1, nil
			}
		}
		at -= size
	}
	return 0, nil
}
