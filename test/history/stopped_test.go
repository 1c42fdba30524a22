package history

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// signal sends a signal to a process, to stop or continue it.
func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// answer sends a request, logs the time it took, and returns the answer.
func answer(t *testing.T, method, url, body string) (code int, text string, header http.Header) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	begin := time.Now()
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error(), nil
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error(), nil
	}
	t.Logf("%s %s: %d after %v", method, url, response.StatusCode, time.Since(begin).Round(time.Millisecond))
	return response.StatusCode, string(data), response.Header
}

// While etcd hangs, reads of the cache are answered, and other requests fail with
// an error that says to retry, which the deadline of a request does not. It hangs
// until they are answered. Afterwards all acknowledged writes are stored and no
// watch has missed an event.
func TestStoppedEtcd(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	server := newAPI(c.urls[0])
	path := server.url
	const before = 20
	for n := range before {
		if _, code := server.create(key(n), "x"); code != http.StatusCreated {
			t.Fatalf("create: %d", code)
		}
	}
	watching, stop := context.WithCancel(t.Context())
	defer stop()
	events := watchNames(t, watching, path)
	for range before {
		expectKey(t, events)
	}

	c.etcd.signal(t, syscall.SIGSTOP)
	resumed := false
	resume := func() {
		if !resumed {
			resumed = true
			c.etcd.signal(t, syscall.SIGCONT)
		}
	}
	defer resume()
	for _, query := range []string{"?resourceVersion=0", "/" + key(0) + "?resourceVersion=0"} {
		if code, text, _ := answer(t, "GET", path+query, ""); code != http.StatusOK {
			t.Errorf("%s from the cache: %d: %s", query, code, text)
		}
	}
	if code, text, _ := answer(t, "GET", c.urls[0]+"/readyz?verbose", ""); code == http.StatusOK || !strings.Contains(text, "[-]etcd failed") {
		t.Errorf("readyz: %d: %s", code, text)
	}
	var asking sync.WaitGroup
	for _, r := range []struct{ method, path, body string }{
		{"GET", path, ""},
		{"POST", path, `{"metadata":{"name":"while-away"}}`},
		{"PUT", path + "/" + key(1), fmt.Sprintf(`{"metadata":{"name":%q},"data":{"value":"y"}}`, key(1))},
		{"DELETE", path + "/" + key(2), ""},
	} {
		asking.Go(func() {
			code, text, header := answer(t, r.method, r.path, r.body)
			var status metav1.Status
			if err := json.Unmarshal([]byte(text), &status); err != nil {
				t.Errorf("%s: %v: %s", r.method, err, text)
			}
			if code < 500 || status.Reason != metav1.StatusReasonServerTimeout || header.Get("Retry-After") == "" {
				t.Errorf("%s while etcd hangs: %d, retry after %q: %s", r.method, code, header.Get("Retry-After"), text)
			}
		})
	}
	asking.Wait()

	resume()
	awaitReady(t, c.urls[0])
	if _, code := server.create(last, "x"); code != http.StatusCreated {
		t.Errorf("create after the recovery: %d", code)
	}
	// Writes that were sent while etcd hung may have been made. If so, all
	// servers must deliver them.
	for event := range events {
		if event == "ADDED "+last {
			break
		}
		t.Log("written while etcd hung: ", event)
	}
	items, _, code := server.list(0)
	for n := range before {
		if _, found := items[key(n)]; !found && n != 2 {
			t.Errorf("%s was acknowledged and is lost (%d)", key(n), code)
		}
	}
}

// awaitReady waits until a server that did not reach etcd is ready.
func awaitReady(t *testing.T, url string) {
	t.Helper()
	recovered := func(context.Context) (bool, error) {
		code, _, _ := answer(t, "GET", url+"/readyz", "")
		return code == http.StatusOK, nil
	}
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, timeout, true, recovered); err != nil {
		t.Fatal("the server did not recover")
	}
}

// watchNames watches until ctx is done and sends a short form of each event.
func watchNames(t *testing.T, ctx context.Context, path string) <-chan string {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, path+"?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request) //nolint:bodyclose // where it is read
	if err != nil {
		t.Fatal(err)
	}
	names := make(chan string)
	done := make(chan struct{})
	t.Cleanup(func() { <-done })
	go func() {
		defer close(done)
		defer close(names)
		defer func() { _ = response.Body.Close() }()
		for scan := bufio.NewScanner(response.Body); scan.Scan(); {
			var e struct {
				Type   string
				Object struct{ Metadata metav1.ObjectMeta }
			}
			if json.Unmarshal(scan.Bytes(), &e) != nil {
				return
			}
			select {
			case names <- e.Type + " " + e.Object.Metadata.Name:
			case <-ctx.Done():
				return
			}
		}
	}()
	return names
}

func expectKey(t *testing.T, events <-chan string) {
	t.Helper()
	select {
	case got := <-events:
		if !strings.HasPrefix(got, "ADDED key-") {
			t.Fatalf("%s, want a key to be added", got)
		}
	case <-time.After(timeout):
		t.Fatal("no event, want a key to be added")
	}
}
