package logs

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A pod that can write to the folder of logs makes the kubelet read nothing
// but logs, and wait for nothing.
func TestWhatIsNoLogIsRefused(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "secret"), "2026-11-21T07:00:00Z stdout F hidden\n")
	if err := os.MkdirAll(filepath.Join(dir, "logs/pod/main"), 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "logs/pod/main/0.log")
	for name, replace := range map[string]func() error{
		"a link to a file":   func() error { return os.Symlink("../../../secret", path) },
		"a link to a device": func() error { return os.Symlink("/dev/zero", path) },
		"a pipe":             func() error { return syscall.Mkfifo(path, 0o600) },
		"a directory":        func() error { return os.Mkdir(path, 0o700) },
	} {
		if err := replace(); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := Read(t.Context(), path, Options{}, &out, &out); err == nil || out.Len() > 0 {
			t.Errorf("%s: %q, %v", name, out.String(), err)
		}
		r := newRotator(t, "1", func(context.Context, string) error { return nil })
		if err := r.Rotate(t.Context(), "id", path); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, "logs/other")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "main"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "main/0.log"), sample)
	if err := Read(t.Context(), filepath.Join(link, "main/0.log"), Options{}, &bytes.Buffer{}, nil); err == nil {
		t.Error("a log below a link was read")
	}
}

// A log that is a hole of 1 TiB ends with its reader, whose memory it does not
// fill, and is never compressed.
func TestEndlessLineEndsWithItsReader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	write(t, path, "")
	if err := os.Truncate(path, 1<<40); err != nil {
		t.Fatal(err)
	}
	n := int64(10)
	for name, o := range map[string]Options{"all": {}, "tail": {Tail: &n}} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := Read(ctx, path, o, &bytes.Buffer{}, nil); err != context.DeadlineExceeded {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	if err := compress(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path + compressedSuffix); !os.IsNotExist(err) {
		t.Errorf("a hole was compressed: %v", err)
	}
}

func TestLongLinesAreCutOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	write(t, path, "2026-11-21T07:00:00Z stdout F one\n2026-11-21T07:00:00Z stdout F "+strings.Repeat("x", 2*maxLine)+"\n2026-11-21T07:00:00Z stdout F two\n")
	var out bytes.Buffer
	if err := Read(t.Context(), path, Options{}, &out, nil); err != nil || out.String() != "one\ntwo\n" {
		t.Errorf("%d bytes, %v", out.Len(), err)
	}
}
