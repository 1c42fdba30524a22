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

	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/kubelet/files"
)

const manifest = `{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {containers: [{name: main, image: a}]}}`

// failingDisk is a file system whose calls a test makes fail.
type failingDisk struct {
	files.Memory
	mu    sync.Mutex // guards fails
	fails map[string]error
}

func (f *failingDisk) fail(call string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fails = map[string]error{call: err}
}

func (f *failingDisk) failure(call string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fails[call]
}

func (f *failingDisk) Stat(path string) (fs.FileMode, error) {
	if err := f.failure("stat " + path); err != nil {
		return 0, err
	}
	return f.Memory.Stat(path)
}

func (f *failingDisk) ReadDir(path string) ([]string, error) {
	if err := f.failure("readdir " + path); err != nil {
		return nil, err
	}
	return f.Memory.ReadDir(path)
}

func (f *failingDisk) ReadFile(path string, limit int64) ([]byte, error) {
	if err := f.failure("read " + path); err != nil {
		return nil, err
	}
	return f.Memory.ReadFile(path, limit)
}

func (f *failingDisk) write(t *testing.T, path, text string) {
	t.Helper()
	if err := f.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// received are the pods that a source has sent.
type received struct {
	names []string
	ready bool
}

func (w *received) take(updates <-chan Update) {
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

// A static pod ends when its manifest is removed, not when the manifest or the
// disk cannot be read.
func TestManifestsThatCannotBeRead(t *testing.T) {
	const dir, one, two = "/m", "/m/one.yaml", "/m/two.yaml"
	half := fmt.Sprintf(manifest, "one")[:40]
	for name, test := range map[string]struct {
		path  string
		spoil func(t *testing.T, disk *failingDisk)
		left  []string
	}{
		"half written":         {dir, func(t *testing.T, d *failingDisk) { d.write(t, one, half) }, []string{"one-alpha", "two-alpha"}},
		"empty":                {dir, func(t *testing.T, d *failingDisk) { d.write(t, one, "") }, []string{"one-alpha", "two-alpha"}},
		"unreadable":           {dir, func(_ *testing.T, d *failingDisk) { d.fail("read "+one, syscall.EIO) }, []string{"one-alpha", "two-alpha"}},
		"too many open files":  {dir, func(_ *testing.T, d *failingDisk) { d.fail("readdir "+dir, syscall.EMFILE) }, []string{"one-alpha", "two-alpha"}},
		"no folder to be seen": {dir, func(_ *testing.T, d *failingDisk) { d.fail("stat "+dir, syscall.EIO) }, []string{"one-alpha", "two-alpha"}},
		"removed":              {dir, func(_ *testing.T, d *failingDisk) { _ = d.Remove(one) }, []string{"two-alpha"}},
		"all removed":          {dir, func(_ *testing.T, d *failingDisk) { _ = d.RemoveAll(dir) }, nil},
		"file half written":    {one, func(t *testing.T, d *failingDisk) { d.write(t, one, half) }, []string{"one-alpha"}},
		"file unreadable":      {one, func(_ *testing.T, d *failingDisk) { d.fail("read "+one, syscall.EIO) }, []string{"one-alpha"}},
		"file removed":         {one, func(_ *testing.T, d *failingDisk) { _ = d.Remove(one) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := &failingDisk{}
				for _, d := range []string{dir, dir + "/folder"} {
					if err := disk.MkdirAll(d, 0o755); err != nil {
						t.Fatal(err)
					}
				}
				disk.write(t, one, fmt.Sprintf(manifest, "one"))
				disk.write(t, two, fmt.Sprintf(manifest, "two"))
				updates := make(chan Update, 100)
				go watchFolder(t.Context(), disk, test.path, "alpha", time.Second, updates)
				time.Sleep(500 * time.Millisecond)
				seen := &received{}
				seen.take(updates)
				if !seen.ready || !slices.Contains(seen.names, "one-alpha") {
					t.Fatalf("received %+v", seen)
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

// A source is ready only after it has read all manifests. Until then the kubelet
// must not remove what looks like the remains of unknown pods.
func TestSourcesAreCompleteOnceRead(t *testing.T) {
	for call, err := range map[string]error{"stat /m": syscall.EIO, "readdir /m": syscall.EMFILE, "read /m/one.yaml": syscall.EIO} {
		synctest.Test(t, func(t *testing.T) {
			disk := &failingDisk{}
			if err := disk.MkdirAll("/m", 0o755); err != nil {
				t.Fatal(err)
			}
			disk.write(t, "/m/one.yaml", fmt.Sprintf(manifest, "one"))
			disk.fail(call, err)
			updates := make(chan Update, 100)
			go watchFolder(t.Context(), disk, "/m", "alpha", time.Second, updates)
			time.Sleep(5 * time.Second)
			seen := &received{}
			if seen.take(updates); seen.ready {
				t.Errorf("%s fails: the source is complete", call)
			}
			disk.fail("", nil)
			time.Sleep(5 * time.Second)
			if seen.take(updates); !seen.ready || !slices.Equal(seen.names, []string{"one-alpha"}) {
				t.Errorf("%s works again: received %+v", call, seen)
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
		watchURL(ctx, server.URL, nil, "alpha", 10*time.Millisecond, updates)
	}()
	first := <-updates
	cancel()
	<-done
	if first.Ready || first.Pod.Name != "one-alpha" {
		t.Errorf("the source began with %+v", first)
	}
}

// A manifest may say which UID its pod has. When it changes, the pod is replaced.
func TestChangesOfAManifestWithUID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &failingDisk{}
		if err := disk.MkdirAll("/m", 0o755); err != nil {
			t.Fatal(err)
		}
		put := func(path, image string) {
			t.Helper()
			disk.write(t, path, "{kind: Pod, metadata: {name: web, uid: 11d0a3c2-0a2b-4c5d-8e9f-001122334455}, spec: {containers: [{name: main, image: "+image+"}]}}")
			time.Sleep(5 * time.Second)
		}
		updates := make(chan Update, 100)
		take := func() (got []string) {
			for {
				select {
				case u := <-updates:
					switch {
					case u.Ready:
					case u.Removed:
						got = append(got, "-"+u.Pod.Spec.Containers[0].Image)
					default:
						got = append(got, "+"+u.Pod.Spec.Containers[0].Image)
					}
				default:
					return got
				}
			}
		}
		go watchFolder(t.Context(), disk, "/m", "alpha", time.Second, updates)
		put("/m/web.yaml", "a")
		if got := take(); !slices.Equal(got, []string{"+a"}) {
			t.Errorf("at first: %q", got)
		}
		put("/m/web.yaml", "b")
		if got := take(); !slices.Equal(got, []string{"-a", "+b"}) {
			t.Errorf("after a change: %q", got)
		}
		put("/m/zz.yaml", "c")
		if got := take(); len(got) > 0 {
			t.Errorf("after another manifest with its UID: %q", got)
		}
	})
}
