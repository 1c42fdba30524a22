package attack

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

const (
	// memoryBar is how near memory must come to where it was before a load.
	memoryBar = 50 << 20
	// memoryTime is how long that may take on a server that is left alone: what
	// happened is kept for 75 seconds for watches that begin anew, and is looked
	// through every 15.
	memoryTime = 2 * time.Minute
	// streams is how many requests one connection carries at a time.
	streams = 200
)

// fullMemory says whether loads have their full size, which takes minutes:
// 10,000 watches, 5,000 pods, and 100,000 objects that 100 clients list.
func fullMemory() bool { return os.Getenv("CORACLE_MEMORY_FULL") != "" }

// size is how large a load is.
func size(affordable, full int) int {
	if fullMemory() {
		return full
	}
	return affordable
}

// loader sends requests as one user over as many connections as they need.
type loader struct {
	config  *rest.Config
	mu      sync.Mutex // guards clients
	clients []*http.Client
}

func newLoader(t *testing.T, config *rest.Config) *loader {
	l := &loader{config: config}
	t.Cleanup(l.close)
	return l
}

// client is the one whose connection carries the i-th request of those that
// last.
func (l *loader) client(i int) (*http.Client, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.clients) <= i/streams {
		tlsConfig, err := rest.TLSConfigFor(l.config)
		if err != nil {
			return nil, err
		}
		transport, err := rest.HTTPWrappersForConfig(l.config, &http.Transport{TLSClientConfig: cloneTLS(tlsConfig), ForceAttemptHTTP2: true, DisableCompression: true})
		if err != nil {
			return nil, err
		}
		l.clients = append(l.clients, &http.Client{Transport: transport})
	}
	return l.clients[i/streams], nil
}

func cloneTLS(config *tls.Config) *tls.Config {
	if config == nil {
		return &tls.Config{}
	}
	return config.Clone()
}

func (l *loader) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.clients {
		c.CloseIdleConnections()
	}
	l.clients = nil
}

// do sends one request and returns its open answer.
func (l *loader) do(ctx context.Context, i int, method, path string, body []byte, headers ...string) (*http.Response, error) {
	client, err := l.client(i)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, l.config.Host+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	for j := 0; j+1 < len(headers); j += 2 {
		request.Header.Set(headers[j], headers[j+1])
	}
	return client.Do(request)
}

// done sends one request and reads its answer to the end.
func (l *loader) done(ctx context.Context, i int, method, path string, body []byte, codes ...int) error {
	response, err := l.do(ctx, i, method, path, body)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	n, err := io.Copy(io.Discard, response.Body)
	if err != nil {
		return fmt.Errorf("%s %s: %w after %d bytes", method, path, err, n)
	}
	for _, code := range codes {
		if response.StatusCode == code {
			return nil
		}
	}
	return fmt.Errorf("%s %s: %s", method, path, response.Status)
}

// each calls f for 0 to n-1, so many at a time, until one fails.
func each(n, atATime int, f func(i int) error) error {
	var next atomic.Int64
	errs := make([]error, atATime)
	var wg sync.WaitGroup
	for worker := range atATime {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n || errs[worker] != nil {
					return
				}
				errs[worker] = f(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// settled waits until the API server's memory has stopped to shrink, and
// returns it.
func (c *cluster) settled(t *testing.T) int64 {
	t.Helper()
	return c.settledFor(t, time.Duration(size(3, 15))*time.Second)
}

// settledFor waits until the memory has not shrunk for so long.
func (c *cluster) settledFor(t *testing.T, calm time.Duration) int64 {
	t.Helper()
	least, since := c.memory(t), time.Now()
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for time.Since(since) < calm {
		<-again.C
		if now := c.memory(t); now < least-1<<20 {
			least, since = now, time.Now()
		}
	}
	return least
}

// givesBack fails the test unless the memory that a load took comes back in
// memoryTime. A load returns when nothing of it is left.
func (c *cluster) givesBack(t *testing.T, load func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	before := c.settled(t)
	var most atomic.Int64
	watching, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		again := time.NewTicker(100 * time.Millisecond)
		defer again.Stop()
		for {
			select {
			case <-watching.Done():
				return
			case <-again.C:
				most.Store(max(most.Load(), c.memory(t)))
			}
		}
	})
	err := load(ctx)
	stop()
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	c.unharmed(t)
	over := time.Now()
	again := time.NewTicker(time.Second)
	defer again.Stop()
	now, said := c.memory(t), 0
	for ; now > before+memoryBar && time.Since(over) < memoryTime; now = c.memory(t) {
		if passed := int(time.Since(over).Seconds()); passed >= said+30 {
			said = passed
			t.Logf("%d s after the load: %d MB", passed, now>>20)
		}
		<-again.C
	}
	t.Logf("memory: %d MB before, %d MB at most, %d MB %v after", before>>20, most.Load()>>20, now>>20, time.Since(over).Round(time.Second))
	t.Logf("of which: %s", c.memoryParts(t))
	if now > before+memoryBar {
		t.Errorf("the API server's process takes %d MB %v after the load; it took %d MB before", now>>20, memoryTime, before>>20)
	}
}

// memoryParts is what the API server says of its memory.
func (c *cluster) memoryParts(t *testing.T) string {
	t.Helper()
	raw, err := c.client.CoreV1().RESTClient().Get().AbsPath("/metrics").Do(t.Context()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	var parts []string
	for line := range strings.Lines(string(raw)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch name {
		case "go_memstats_heap_alloc_bytes", "go_memstats_heap_inuse_bytes", "go_memstats_stack_inuse_bytes":
			bytes, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, fmt.Sprintf("%s %d MB", name, int(bytes)>>20))
		case "go_goroutines":
			parts = append(parts, line)
		}
	}
	return strings.TrimSpace(strings.Join(parts, ", "))
}

// TestThousandsOfWatches: what watches take is given back when they end.
func TestThousandsOfWatches(t *testing.T) {
	t.Parallel() // it waits, most of the time
	c := own(t, "--nodes=0")
	watches := size(1000, 10000)
	c.givesBack(t, func(ctx context.Context) error {
		l := newLoader(t, c.admin)
		defer l.close()
		ctx, end := context.WithCancel(ctx)
		defer end()
		return each(watches, 32, func(i int) error {
			response, err := l.do(ctx, i, http.MethodGet, "/api/v1/configmaps?watch=1&resourceVersion=0", nil)
			if err != nil {
				return err
			}
			if response.StatusCode != http.StatusOK {
				return fmt.Errorf("watch %d: %s", i, response.Status)
			}
			context.AfterFunc(ctx, func() { _ = response.Body.Close() })
			return nil
		})
	})
}

const (
	memoryPod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"memory-%d","labels":{"app":"web","n":"%[1]d"}},"spec":{"containers":[{"name":"main","image":"registry.example/app/web:1.2.3","ports":[{"containerPort":8080}],"env":[{"name":"A","value":"1"},{"name":"B","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}],"resources":{"requests":{"cpu":"100m","memory":"64Mi"}},"livenessProbe":{"httpGet":{"path":"/healthz","port":8080}}}]}}`
	memoryMap = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"memory-%d","labels":{"app":"web"}},"data":{"a":"%0512[1]d"}}`
)

// TestThousandsOfPodsCreatedAndDeleted: what is gone is forgotten.
func TestThousandsOfPodsCreatedAndDeleted(t *testing.T) {
	t.Parallel() // it waits, most of the time
	c := own(t, "--nodes=0")
	pods := size(100, 5000)
	const path = "/api/v1/namespaces/default/pods"
	c.givesBack(t, func(ctx context.Context) error {
		l := newLoader(t, c.admin)
		defer l.close()
		return errors.Join(
			each(pods, 32, func(i int) error {
				return l.done(ctx, 0, http.MethodPost, path, fmt.Appendf(nil, memoryPod, i), http.StatusCreated)
			}),
			each(pods, 32, func(i int) error {
				return l.done(ctx, 0, http.MethodDelete, fmt.Sprintf("%s/memory-%d?gracePeriodSeconds=0", path, i), nil, http.StatusOK)
			}),
		)
	})
}

// TestHundredClientsListEverything: lists share what is there, and leave
// nothing behind. Those for which there is no memory may be refused.
func TestHundredClientsListEverything(t *testing.T) {
	t.Parallel() // it waits, most of the time
	c := own(t, "--nodes=0")
	objects, clients := size(2000, 100000), 100
	l := newLoader(t, c.admin)
	if err := each(objects, 32, func(i int) error {
		return l.done(t.Context(), 0, http.MethodPost, "/api/v1/namespaces/default/configmaps", fmt.Appendf(nil, memoryMap, i), http.StatusCreated)
	}); err != nil {
		t.Fatal(err)
	}
	if fullMemory() {
		c.settledFor(t, memoryTime/2) // what creating them left behind is no part of it
	}
	c.givesBack(t, func(ctx context.Context) error {
		return each(clients, clients, func(i int) error {
			return l.done(ctx, i*streams/4, http.MethodGet, "/api/v1/configmaps", nil, http.StatusOK, http.StatusTooManyRequests)
		})
	})
}

// TestWatchersThatNeverRead: they hold little of what happens, however long
// they stay, and others see it all meanwhile.
func TestWatchersThatNeverRead(t *testing.T) {
	c := own(t, "--nodes=0")
	watchers, updates := size(20, 500), size(100, 2000)
	const path = "/api/v1/namespaces/default/configmaps"
	object := func(i int) []byte {
		return fmt.Appendf(nil, `{"metadata":{"name":"large"},"data":{"a":"%0*d"}}`, 64<<10, i)
	}
	l := newLoader(t, c.admin)
	if err := l.done(t.Context(), 0, http.MethodPost, path, object(0), http.StatusCreated); err != nil {
		t.Fatal(err)
	}
	c.givesBack(t, func(context.Context) error {
		for range watchers {
			if err := c.watchBlindly(t, path); err != nil {
				return err
			}
		}
		c.meanwhile(t, func(ctx context.Context) {
			for i := range updates {
				if err := l.done(ctx, 0, http.MethodPut, path+"/large", object(i+1), http.StatusOK); err != nil {
					t.Error(err)
					return
				}
			}
		})
		return nil
	})
}

// watchBlindly begins a watch that is not read, until the end of the test.
func (c *cluster) watchBlindly(t *testing.T, path string) error {
	tlsConfig, err := rest.TLSConfigFor(c.admin)
	if err != nil {
		return err
	}
	plain, err := net.Dial("tcp", c.address())
	if err != nil {
		return err
	}
	t.Cleanup(func() { _ = plain.Close() })
	if err := plain.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		return err
	}
	tlsConfig = cloneTLS(tlsConfig)
	tlsConfig.ServerName, _, _ = net.SplitHostPort(c.address())
	_, err = fmt.Fprintf(tls.Client(plain, tlsConfig), "GET %s?watch=1&resourceVersion=0 HTTP/1.1\r\nHost: %s\r\n\r\n", path, c.address())
	return err
}
