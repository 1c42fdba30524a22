package source

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coracle-io/coracle/internal/kubelet/files"
)

const manifest = `{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {containers: [{name: main, image: a}]}}`

// faulty is a disk of which a test makes calls fail.
type faulty struct {
	files.Memory
	mu    sync.Mutex // guards fails
	fails map[string]error
}

func (f *faulty) fail(call string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fails = map[string]error{call: err}
}

func (f *faulty) failure(call string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fails[call]
}

func (f *faulty) Stat(path string) (fs.FileMode, error) {
	if err := f.failure("stat " + path); err != nil {
		return 0, err
	}
	return f.Memory.Stat(path)
}

func (f *faulty) ReadDir(path string) ([]string, error) {
	if err := f.failure("readdir " + path); err != nil {
		return nil, err
	}
	return f.Memory.ReadDir(path)
}

func (f *faulty) ReadFile(path string, limit int64) ([]byte, error) {
	if err := f.failure("read " + path); err != nil {
		return nil, err
	}
	return f.Memory.ReadFile(path, limit)
}

func (f *faulty) write(t *testing.T, path, text string) {
	t.Helper()
	if err := f.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// told is what a source has told so far.
type told struct {
	names []string
	ready bool
}

func (w *told) take(updates <-chan Update) {
	for {
		select {
		case u := <-updates:
			switch {
			case u.Ready:
				w.ready = true
			case u.Removed:
				w.names = slices.DeleteFunc(w.names, func(n string) bool { return n == u.Pod.Name })
			default:
				w.names = append(w.names, u.Pod.Name)
			}
		default:
			slices.Sort(w.names)
			return
		}
	}
}

// A pod ends when its manifest is gone, and for nothing else that is wrong
// with its manifest or the disk.
func TestManifestsThatCannotBeRead(t *testing.T) {
	const dir, one, two = "/m", "/m/one.yaml", "/m/two.yaml"
	half := fmt.Sprintf(manifest, "one")[:40]
	for name, test := range map[string]struct {
		path  string
		spoil func(t *testing.T, disk *faulty)
		left  []string
	}{
		"half written":         {dir, func(t *testing.T, d *faulty) { d.write(t, one, half) }, []string{"one-alpha", "two-alpha"}},
		"empty":                {dir, func(t *testing.T, d *faulty) { d.write(t, one, "") }, []string{"one-alpha", "two-alpha"}},
		"unreadable":           {dir, func(_ *testing.T, d *faulty) { d.fail("read "+one, syscall.EIO) }, []string{"one-alpha", "two-alpha"}},
		"too many open files":  {dir, func(_ *testing.T, d *faulty) { d.fail("readdir "+dir, syscall.EMFILE) }, []string{"one-alpha", "two-alpha"}},
		"no folder to be seen": {dir, func(_ *testing.T, d *faulty) { d.fail("stat "+dir, syscall.EIO) }, []string{"one-alpha", "two-alpha"}},
		"removed":              {dir, func(_ *testing.T, d *faulty) { _ = d.Remove(one) }, []string{"two-alpha"}},
		"all removed":          {dir, func(_ *testing.T, d *faulty) { _ = d.Remove(dir) }, nil},
		"file half written":    {one, func(t *testing.T, d *faulty) { d.write(t, one, half) }, []string{"one-alpha"}},
		"file unreadable":      {one, func(_ *testing.T, d *faulty) { d.fail("read "+one, syscall.EIO) }, []string{"one-alpha"}},
		"file removed":         {one, func(_ *testing.T, d *faulty) { _ = d.Remove(one) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := &faulty{}
				for _, d := range []string{dir, dir + "/folder"} {
					if err := disk.MkdirAll(d, 0o755); err != nil {
						t.Fatal(err)
					}
				}
				disk.write(t, one, fmt.Sprintf(manifest, "one"))
				disk.write(t, two, fmt.Sprintf(manifest, "two"))
				updates := make(chan Update, 100)
				go Folder(t.Context(), disk, test.path, "alpha", time.Second, updates)
				time.Sleep(500 * time.Millisecond)
				seen := &told{}
				seen.take(updates)
				if !seen.ready || !slices.Contains(seen.names, "one-alpha") {
					t.Fatalf("told are %+v", seen)
				}
				test.spoil(t, disk)
				time.Sleep(5 * time.Second)
				seen.take(updates)
				if !slices.Equal(seen.names, test.left) {
					t.Errorf("left are %v, want %v", seen.names, test.left)
				}
			})
		})
	}
}

// A source that could not look yet has not told all of its pods: those that
// run already would be ended.
func TestSourcesAreCompleteOnceRead(t *testing.T) {
	for call, err := range map[string]error{"stat /m": syscall.EIO, "readdir /m": syscall.EMFILE, "read /m/one.yaml": syscall.EIO} {
		synctest.Test(t, func(t *testing.T) {
			disk := &faulty{}
			if err := disk.MkdirAll("/m", 0o755); err != nil {
				t.Fatal(err)
			}
			disk.write(t, "/m/one.yaml", fmt.Sprintf(manifest, "one"))
			disk.fail(call, err)
			updates := make(chan Update, 100)
			go Folder(t.Context(), disk, "/m", "alpha", time.Second, updates)
			time.Sleep(5 * time.Second)
			seen := &told{}
			if seen.take(updates); seen.ready {
				t.Errorf("%s fails: the source is complete", call)
			}
			disk.fail("", nil)
			time.Sleep(5 * time.Second)
			if seen.take(updates); !seen.ready || !slices.Equal(seen.names, []string{"one-alpha"}) {
				t.Errorf("%s works again: told are %+v", call, seen)
			}
		})
	}
}

func TestURLIsCompleteOnceRead(t *testing.T) {
	var mu sync.Mutex
	answer := http.StatusServiceUnavailable
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		w.WriteHeader(answer)
		_, _ = fmt.Fprintf(w, manifest, "one")
		answer = http.StatusOK
	}))
	defer server.Close()
	updates := make(chan Update, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		URL(ctx, server.URL, nil, "alpha", 10*time.Millisecond, updates)
	}()
	first := <-updates
	cancel()
	<-done
	if first.Ready || first.Pod.Name != "one-alpha" {
		t.Errorf("the source began with %+v", first)
	}
}
