package logs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

const sample = `2026-11-21T07:00:00.1Z stdout F one
2026-11-21T07:00:01.25Z stderr F two
2026-11-21T07:00:02Z stdout P thr
2026-11-21T07:00:02.5Z stdout F ee
torn
2026-11-21T07:00:03Z stdout F:tag four words in all
2026-11-21T07:00:04Z stdout F no end`

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	write(t, path, sample)
	n := func(n int64) *int64 { return &n }
	for name, test := range map[string]struct {
		options  Options
		out, err string
	}{
		"all":        {out: "one\nthree\nfour words in all\nno end", err: "two\n"},
		"tail":       {options: Options{Tail: n(2)}, out: "four words in all\nno end"},
		"tail none":  {options: Options{Tail: n(0)}},
		"tail more":  {options: Options{Tail: n(100)}, out: "one\nthree\nfour words in all\nno end", err: "two\n"},
		"limit":      {options: Options{Limit: n(6)}, out: "one\n", err: "tw"},
		"limit even": {options: Options{Limit: n(8)}, out: "one\n", err: "two\n"},
		"since":      {options: Options{Since: time.Date(2026, 11, 21, 7, 0, 3, 0, time.UTC)}, out: "four words in all\nno end"},
		"since none": {options: Options{Since: time.Date(2026, 11, 21, 7, 0, 5, 0, time.UTC)}},
		"since tail": {options: Options{Tail: n(2), Since: time.Date(2026, 11, 21, 7, 0, 4, 0, time.UTC)}, out: "no end"},
		"limit time": {options: Options{Timestamps: true, Limit: n(10)}, out: "2026-11-21"}, // times count
		"timestamps": {options: Options{Timestamps: true, Tail: n(5)}, out: "2026-11-21T07:00:02.000000000Z three\n2026-11-21T07:00:03.000000000Z four words in all\n2026-11-21T07:00:04.000000000Z no end"},
	} {
		var out, errs bytes.Buffer
		if err := Read(t.Context(), path, test.options, &out, &errs); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff([]string{test.out, test.err}, []string{out.String(), errs.String()}); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
	var errs bytes.Buffer
	if err := Read(t.Context(), path, Options{}, nil, &errs); err != nil || errs.String() != "two\n" {
		t.Errorf("only stderr: %q, %v", errs.String(), err)
	}
}

// A tail is found over the borders of the blocks it is looked for in.
func TestStartOfTail(t *testing.T) {
	text := strings.Repeat(strings.Repeat("x", 1023)+"\n", 100)
	for n := range int64(102) {
		at, err := startOfTail(t.Context(), strings.NewReader(text), n)
		if want := max(int64(len(text))-1024*n, 0); err != nil || at != want {
			t.Fatalf("the last %d lines begin at %d, %v; want %d", n, at, err, want)
		}
	}
}

// writer writes a log as a runtime does, and moves it aside as the kubelet does.
type writer struct {
	t    *testing.T
	path string
	file *os.File
	n    int
}

func (w *writer) reopen() {
	f, err := os.OpenFile(w.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		w.t.Fatal(err)
	}
	w.file = f
}

func (w *writer) line() {
	w.n++
	if _, err := fmt.Fprintf(w.file, "2026-11-21T07:00:00Z stdout F line %d\n", w.n); err != nil {
		w.t.Fatal(err)
	}
}

// rotate leaves lines behind at each point where a reader may come too late.
func (w *writer) rotate() {
	old := w.file
	if err := os.Rename(w.path, fmt.Sprintf("%s.%06d", w.path, w.n)); err != nil {
		w.t.Fatal(err)
	}
	w.line()
	w.reopen()
	next := w.file
	w.file = old
	w.line()
	_ = old.Close()
	w.file = next
}

func TestFollowOverRotations(t *testing.T) {
	w := &writer{t: t, path: filepath.Join(t.TempDir(), "0.log")}
	w.reopen()
	w.line()
	var ended atomic.Bool
	r, pipe := io.Pipe()
	go func() {
		err := Read(t.Context(), w.path, Options{Follow: true, Running: func(context.Context) (bool, error) { return !ended.Load(), nil }}, pipe, pipe)
		pipe.CloseWithError(err)
	}()
	lines := bufio.NewScanner(r)
	read := 0
	for round := range 200 {
		for read < w.n {
			if read++; !lines.Scan() || lines.Text() != fmt.Sprintf("line %d", read) {
				t.Fatalf("round %d: got %q (%v), want line %d", round, lines.Text(), lines.Err(), read)
			}
		}
		w.rotate()
		w.line()
	}
	ended.Store(true)
	for lines.Scan() {
		read++
	}
	if read != w.n || lines.Err() != nil {
		t.Fatalf("the log ended after %d of %d lines: %v", read, w.n, lines.Err())
	}
}

// A reader that does not keep up may lose notifications of the kernel, and must
// still see what is written after that.
func TestFollowAfterAnOverflow(t *testing.T) {
	raw, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	if err != nil {
		t.Skip("this machine has no inotify:", err)
	}
	queued, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil || queued > 1<<17 {
		t.Skipf("the queue of inotify has %q events", raw)
	}
	dir := t.TempDir()
	w := &writer{t: t, path: filepath.Join(dir, "0.log")}
	w.reopen()
	w.line()
	r, pipe := io.Pipe()
	idle := make(chan struct{}, 1)
	go func() {
		pipe.CloseWithError(Read(t.Context(), w.path, Options{Follow: true, Running: func(context.Context) (bool, error) {
			select {
			case idle <- struct{}{}:
			default:
			}
			return true, nil
		}}, pipe, pipe))
	}()
	lines := bufio.NewScanner(r)
	next := func() {
		t.Helper()
		if !lines.Scan() || lines.Text() != fmt.Sprintf("line %d", w.n) {
			t.Fatalf("got %q (%v), want line %d", lines.Text(), lines.Err(), w.n)
		}
	}
	next()
	<-idle
	w.line() // the reader waits until somebody takes it
	others := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}
	for _, path := range others {
		write(t, path, "")
	}
	const buffered = 1 << 13 // more than are read from the kernel at once
	for i := range queued + buffered {
		if err := os.Chmod(others[i%2], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-idle:
	default:
	}
	next()
	<-idle
	w.line()
	defer time.AfterFunc(3*time.Minute, func() { _ = r.CloseWithError(errors.New("the reader does not see the line")) }).Stop()
	next()
}

// A log that is rotated while it is read, and not followed, leaves no file open.
func TestReadClosesFiles(t *testing.T) {
	w := &writer{t: t, path: filepath.Join(t.TempDir(), "0.log")}
	w.reopen()
	for range 2 * chunk / len("line 1") { // so that the output is written before the end
		w.line()
	}
	rotated := false
	out := &onWrite{func() {
		if !rotated {
			rotated = true
			w.rotate()
			w.line()
		}
	}}
	if err := Read(t.Context(), w.path, Options{Limit: new(int64(1 << 20))}, out, out); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("this machine has no /proc:", err)
	}
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name())); err == nil && strings.HasPrefix(target, w.path) && e.Name() != fmt.Sprint(w.file.Fd()) {
			t.Errorf("%s is open", target)
		}
	}
}

// onWrite calls a function at each write.
type onWrite struct{ do func() }

func (w *onWrite) Write(p []byte) (int, error) {
	w.do()
	return len(p), nil
}

func TestFollowEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	write(t, path, sample)
	ctx, cancel := context.WithCancel(t.Context())
	running := func(context.Context) (bool, error) { cancel(); return true, nil }
	var out bytes.Buffer
	if err := Read(ctx, path, Options{Follow: true, Running: running}, &out, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("after its context a log was read on: %v", err)
	}
	gone := errors.New("gone")
	if err := Read(t.Context(), path, Options{Follow: true, Running: func(context.Context) (bool, error) { return false, gone }}, &out, nil); !errors.Is(err, gone) {
		t.Errorf("a runtime's failure was lost: %v", err)
	}
}

// Readers that follow logs do not take all of the machine's instances of inotify.
func TestWatchesAreBounded(t *testing.T) {
	open := 0
	w := &Watches{open: func(string) (<-chan struct{}, func()) {
		open++
		return make(chan struct{}), func() { open-- }
	}}
	var stops []func()
	for i := range 2 * maxWatches {
		changes, stop := w.add("dir")
		if watched := changes != nil; watched != (i < maxWatches) {
			t.Errorf("log %d is watched: %v", i, watched)
		}
		stops = append(stops, stop)
	}
	if open != maxWatches {
		t.Errorf("%d directories are watched, want %d", open, maxWatches)
	}
	for _, stop := range stops {
		stop()
	}
	if changes, stop := w.add("dir"); changes == nil || open != 1 {
		t.Errorf("after all others have ended, a log is not watched: %d", open)
	} else {
		stop()
	}
	if w.count != 0 || open != 0 {
		t.Errorf("%d watches are left, and %d directories", w.count, open)
	}
}

// However many logs are followed, the runtime is asked a hundred times a second whether
// their containers run.
func TestRuntimeIsAskedInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		o := &Options{Watches: &Watches{}, Running: func(context.Context) (bool, error) {
			asked.Add(1)
			return true, nil
		}}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var readers sync.WaitGroup
		for range 1000 {
			readers.Go(func() {
				for ended := false; !ended; {
					ended, _ = quiet(ctx, nil, o)
				}
			})
		}
		readers.Wait()
		if n := asked.Load(); n < 500 || n > 1200 {
			t.Errorf("the runtime was asked %d times in 10 seconds", n)
		}
	})
}

// A line has a time, a stream, tags and what the container wrote. Others are skipped.
func TestParse(t *testing.T) {
	const at = "2016-10-20T18:39:20.57606443Z "
	for line, want := range map[string]string{
		at + "stdout F some text\n":                   "stdout: some text\n",
		at + "stderr F some text\n":                   "stderr: some text\n",
		at + "stdout F no end":                        "stdout: no end",
		at + "stdout F \n":                            "stdout: \n",
		at + "stdout F  two spaces\n":                 "stdout:  two spaces\n",
		at + "stdout P a part\n":                      "stdout: a part",
		at + "stdout P:one:two a part\n":              "stdout: a part",
		at + "stdout F:P all of it\n":                 "stdout: all of it\n",
		"2016-10-20T20:39:20+02:00 stdout F text\n":   "stdout: text\n",
		at + "stdin F text\n":                         "",
		at + "stdout F\n":                             "",
		at + "stdout\n":                               "",
		at + "\n":                                     "",
		"2016-10-20 18:39:20 stdout F text\n":         "",
		"0123456789 stdout F text\n":                  "",
		"stdout F text\n":                             "",
		`{"log":"text","stream":"stdout","time":"x"}`: "",
		"\n": "", "": "",
	} {
		got := ""
		if when, stream, piece, ok := parse([]byte(line)); ok {
			got = stream + ": " + string(piece)
			if when.UTC().Format(time.DateTime) != "2016-10-20 18:39:20" {
				t.Errorf("%q is of %s", line, when)
			}
		}
		if got != want {
			t.Errorf("%q has %q, want %q", line, got, want)
		}
	}
}
