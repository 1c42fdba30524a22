package logs

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// How long a log that is followed must be silent until the container is asked
// after, and how often it is from then on.
const (
	silence = 100 * time.Millisecond
	recheck = 500 * time.Millisecond
)

// Options say which part of a log is wanted, as v1.PodLogOptions does.
type Options struct {
	Follow     bool // go on until the container ends
	Timestamps bool // before each line
	Tail       *int64
	Limit      *int64 // bytes
	Since      time.Time
	// Running tells whether the container still runs; asked only when following.
	Running func(context.Context) (bool, error)
}

// Read writes the log that a container runtime keeps at path, in the form of
// the CRI, to stdout and stderr; what goes to a nil writer is passed over.
// A log that is followed is followed over its rotations: no line is lost as
// long as the reader is not a whole file behind.
func Read(ctx context.Context, path string, o Options, stdout, stderr io.Writer) error {
	changes, stop := watch(ctx, filepath.Dir(path), o.Follow)
	defer stop()
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
		next, err := f.successor(ctx, path)
		if err != nil {
			return err
		}
		if next != nil && o.Follow {
			err := f.drain(ctx, out) // what was written between the last look and the move
			_ = f.Close()
			if f = next; err != nil {
				return ignoreFull(err)
			}
			continue
		}
		if ended {
			return ignoreFull(errors.Join(out.line(f.rest), out.flush()))
		}
		if err := out.flush(); err != nil {
			return err
		}
		if ended, err = quiet(ctx, changes, o.Running); err != nil {
			return err
		}
	}
}

// quiet waits until the log may have grown, or the container has ended.
func quiet(ctx context.Context, changes <-chan fsnotify.Event, running func(context.Context) (bool, error)) (ended bool, err error) {
	timer := time.NewTimer(silence)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return true, ctx.Err()
		case <-changes:
			return false, nil
		case <-timer.C:
			if ok, err := running(ctx); err != nil || !ok {
				return true, err
			}
			if changes == nil {
				return false, nil
			}
			timer.Reset(recheck)
		}
	}
}

// watch tells of changes in a folder. Without inotify nothing is told, and the
// caller has to look by itself.
func watch(ctx context.Context, dir string, wanted bool) (changes <-chan fsnotify.Event, stop func()) {
	if !wanted {
		return nil, func() {}
	}
	w, err := fsnotify.NewWatcher()
	if err == nil {
		if err = w.Add(dir); err == nil {
			return w.Events, func() { _ = w.Close() }
		}
		_ = w.Close()
	}
	klog.FromContext(ctx).V(2).Info("Following a log by looking at it now and then", "folder", dir, "err", err)
	return nil, func() {}
}

// file is one file of a log, read line by line.
type file struct {
	*os.File
	lines *bufio.Reader
	rest  []byte // of a line whose end has not been written yet
}

// Split takes the path of a container's log apart into the folder of all logs
// and what pods could change of the path: FOLDER/POD/CONTAINER/FILE.
func Split(path string) (root, rest string) {
	root = filepath.Dir(filepath.Dir(filepath.Dir(path)))
	rest, _ = files.Beneath(root, path)
	return root, rest
}

// openLog opens one file of a log, unless something else has its place.
func openLog(path string) (*os.File, error) {
	root, rest := Split(path)
	return files.OpenBeneath(root, rest, files.RefuseLinks)
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

// maxLine bounds a line of the file. Runtimes cut lines much earlier (16 KiB);
// what is longer is not theirs.
const maxLine = 1 << 20

// drain writes what is there.
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

// successor opens the file that the runtime writes to by now, if it is another
// one. One with nothing in it does not count: the runtime may not have let go
// of the old one.
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

// startOfTail finds where the last n lines begin.
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
