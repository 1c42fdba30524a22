package logs

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/google/go-cmp/cmp"
)

func TestSift(t *testing.T) {
	for name, test := range map[string]struct{ paths, whole, left []string }{
		"none":        {},
		"whole":       {paths: []string{"l.1.gz", "l.2"}, whole: []string{"l.1.gz", "l.2"}},
		"interrupted": {paths: []string{"l.1", "l.1.gz", "l.2", "l.2.tmp"}, whole: []string{"l.1.gz", "l.2"}, left: []string{"l.1", "l.2.tmp"}},
	} {
		whole, left := selectRotated(test.paths)
		if diff := cmp.Diff([][]string{test.whole, test.left}, [][]string{whole, left}); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}

// A rotation removes the oldest files, and does not wait for their compression, which also
// removes what an interrupted one left.
func TestOldLogs(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "0.log")
	for _, name := range []string{"20200101-000000.gz", "20200102-000000", "20200103-000000", "20200103-000000.tmp"} {
		write(t, log+"."+name, "old")
	}
	write(t, log, strings.Repeat("new", 10))
	r := newRotator(t, "10", func(context.Context, string) error { write(t, log, ""); return nil })
	if err := r.Rotate(t.Context(), "id", log); err != nil {
		t.Fatal(err)
	}
	before := names(t, dir)
	if want := []string{"0.log", "0.log.20200103-000000", "0.log.20200103-000000.tmp"}; len(before) != 4 || !slices.Equal(before[:3], want) {
		t.Errorf("after the rotation: %v", before)
	}
	for range 2 {
		if err := r.Compress(t.Context(), log); err != nil {
			t.Fatal(err)
		}
		if after := names(t, dir); !slices.Equal(after, []string{"0.log", "0.log.20200103-000000.gz", before[3]}) {
			t.Errorf("after the compression: %v", after)
		}
	}
}

func names(t *testing.T, dir string) (out []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestRotate(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "0.log")
	write(t, log+".20200101-000000", "old")
	const mode = 0o664
	if err := os.Chmod(log+".20200101-000000", mode); err != nil {
		t.Fatal(err)
	}
	write(t, log, "new")
	var failure error
	r := newRotator(t, "10", func(context.Context, string) error {
		if failure == nil {
			write(t, log, "")
		}
		return failure
	})
	if err := r.Rotate(t.Context(), "id", log); err != nil || len(names(t, dir)) != 2 {
		t.Fatalf("a small log was rotated: %v %v", names(t, dir), err)
	}
	write(t, log, strings.Repeat("new", 10))
	failure = errors.New("no")
	if err := r.Rotate(t.Context(), "id", log); !errors.Is(err, failure) {
		t.Fatal(err)
	}
	if raw, _ := os.ReadFile(log); len(raw) != 30 {
		t.Fatalf("the log is lost after a failure: %q", raw)
	}
	failure = nil
	if err := errors.Join(r.Rotate(t.Context(), "id", log), r.Compress(t.Context(), log)); err != nil {
		t.Fatal(err)
	}
	got := names(t, dir)
	if len(got) != 3 || got[0] != "0.log" || got[1] != "0.log.20200101-000000.gz" || strings.HasSuffix(got[2], ".gz") {
		t.Fatalf("after the rotation: %v", got)
	}
	f, err := os.Open(filepath.Join(dir, got[1]))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || info.Mode().Perm() != mode {
		t.Errorf("the compressed log has mode %v, %v", info.Mode(), err)
	}
	unpacked, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if raw, err := io.ReadAll(unpacked); err != nil || string(raw) != "old" {
		t.Fatalf("the compressed log is %q, %v", raw, err)
	}
	if err := Remove(log); err != nil || len(names(t, dir)) != 0 {
		t.Fatalf("left after removal: %v %v", names(t, dir), err)
	}
}

// A rotation that is interrupted between the rename and the reopening leaves
// no current log.
func TestRotateRestoresAMissingLog(t *testing.T) {
	dir := t.TempDir()
	refused := errors.New("no")
	write(t, filepath.Join(dir, "file"), "")
	for name, test := range map[string]struct {
		log      string
		err      error // of the runtime
		reopened int
		want     error
	}{
		"interrupted":             {log: filepath.Join(dir, "0.log"), reopened: 1},
		"the runtime refuses":     {log: filepath.Join(dir, "0.log"), err: refused, reopened: 1, want: refused},
		"no log":                  {log: ""},
		"the directory is gone":   {log: filepath.Join(dir, "gone", "0.log")},
		"the path cannot be read": {log: filepath.Join(dir, "file", "0.log"), want: syscall.ENOTDIR},
	} {
		t.Run(name, func(t *testing.T) {
			reopened := 0
			r := newRotator(t, "10", func(_ context.Context, id string) error {
				if id != "id" {
					t.Errorf("the log of container %q was reopened", id)
				}
				reopened++
				return test.err
			})
			if err := r.Rotate(t.Context(), "id", test.log); !errors.Is(err, test.want) || reopened != test.reopened {
				t.Errorf("got %v after reopening %d times, want %v after %d", err, reopened, test.want, test.reopened)
			}
		})
	}
}

// newRotator returns a Rotator that keeps three files.
func newRotator(t *testing.T, maxSize string, reopen func(ctx context.Context, id string) error) *Rotator {
	t.Helper()
	r, err := NewRotator(&kubeletconfig.KubeletConfiguration{ContainerLogMaxSize: maxSize, ContainerLogMaxFiles: new(int32(3))}, reopen)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Logs grow without bound if their maximum size is negative.
func TestNoRotation(t *testing.T) {
	if r, err := NewRotator(&kubeletconfig.KubeletConfiguration{ContainerLogMaxSize: "-1"}, nil); r != nil || err != nil {
		t.Errorf("got %v, %v", r, err)
	}
}
