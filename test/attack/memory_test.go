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
	// memoryTolerance is the memory that a load may leave allocated.
	memoryTolerance = 50 << 20
	// memoryTimeout limits the time until a server has released the memory of a
	// load. The watch cache keeps events for 75 seconds, and checks their age
	// every 15 seconds.
	memoryTimeout = 3 * time.Minute
	// streams is the number of concurrent requests on a connection.
	streams = 200
)

// fullMemory reports whether loads have their full size, which takes minutes:
// 10,000 watches, 5,000 pods, and 100,000 objects that 100 clients list.
func fullMemory() bool { return os.Getenv("CORACLE_MEMORY_FULL") != "" }

// size returns the size of a load.
func size(affordable, full int) int {
	if fullMemory() {
		return full
	}
	return affordable
}

// loader sends requests as one user. It opens as many connections as the number of
// concurrent requests needs.
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

// client returns the client for the i-th concurrent request.
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

// do sends a request and returns the response. The caller must close its body.
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

// done sends a request and reads the whole response. It returns an error unless the
// status is one of codes.
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

// each calls f for 0 to n-1, atATime of them concurrently. It stops after an error.
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

// stableMemory waits until the API server's memory no longer shrinks, and returns
// it.
func (c *cluster) stableMemory(t *testing.T) int64 {
	t.Helper()
	return c.stableMemoryFor(t, time.Duration(size(3, 15))*time.Second)
}

// stableMemoryFor waits until the memory has not shrunk for a duration.
func (c *cluster) stableMemoryFor(t *testing.T, calm time.Duration) int64 {
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

// checkMemoryReleased fails the test unless the server releases the memory of a
// load: what a garbage collection leaves and, for loads of full size, the memory
// of the process, which depends on how idle the machine is. load must return
// after its last request has ended.
func (c *cluster) checkMemoryReleased(t *testing.T, load func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	before := c.stableMemory(t)
	holds, err := held(c)
	if err != nil {
		t.Fatal(err)
	}
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
	err = load(ctx)
	stop()
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	c.checkNotRestarted(t)
	awaitReleased(t, c, holds, before)
	t.Logf("memory: %d MB before, %d MB at most, %d MB after, of which: %s", before>>20, most.Load()>>20, c.memory(t)>>20, c.memoryParts(t))
}

// awaitReleased waits until the server holds no more than before a load.
func awaitReleased(t *testing.T, c *cluster, before, process int64) {
	t.Helper()
	over := time.Now()
	deadline, again := time.NewTimer(memoryTimeout), time.NewTicker(time.Second)
	defer deadline.Stop()
	defer again.Stop()
	for {
		now, err := held(c)
		if err != nil {
			t.Fatal(err)
		}
		memory := c.memory(t)
		if now <= before+memoryTolerance && (!fullMemory() || memory <= process+memoryTolerance) {
			t.Logf("%d MB are held %v after the load, %d MB before", now>>20, time.Since(over).Round(time.Second), before>>20)
			return
		}
		select {
		case <-deadline.C:
			t.Errorf("the API server holds %d MB, and its process takes %d MB, %v after the load; they were %d and %d MB before", now>>20, memory>>20, memoryTimeout, before>>20, process>>20)
			return
		case <-again.C:
		}
	}
}

// held returns the bytes of the API server's heap and stacks that a garbage
// collection leaves. They depend on what the server does alone.
func held(c *cluster) (int64, error) {
	heap, err := liveHeap(c)
	if err != nil {
		return 0, err
	}
	stacks, err := c.gauge("go_memstats_stack_inuse_bytes")
	return heap + stacks, err
}

// largestHeap returns the largest size in bytes that the API server's heap has
// had. The runtime may have given some of it back since.
func largestHeap(t *testing.T, c *cluster) int64 {
	t.Helper()
	largest, err := c.gauge("go_memstats_heap_sys_bytes")
	if err != nil {
		t.Fatal(err)
	}
	return largest
}

// memoryParts returns the API server's metrics of its memory.
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

// TestThousandsOfWatches checks that the memory of watches is released when they
// end.
func TestThousandsOfWatches(t *testing.T) {
	t.Parallel() // it mostly waits
	c := startOwn(t, "--nodes=0")
	watches := size(1000, 10000)
	c.checkMemoryReleased(t, func(ctx context.Context) error {
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

// TestThousandsOfPodsCreatedAndDeleted checks that the memory of deleted objects is
// released.
func TestThousandsOfPodsCreatedAndDeleted(t *testing.T) {
	t.Parallel() // it mostly waits
	c := startOwn(t, "--nodes=0")
	pods := size(100, 5000)
	const path = "/api/v1/namespaces/default/pods"
	c.checkMemoryReleased(t, func(ctx context.Context) error {
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

// TestHundredClientsListAllObjects checks that the memory of concurrent lists is
// released. Lists that exceed the memory budget may be refused.
func TestHundredClientsListAllObjects(t *testing.T) {
	t.Parallel() // it mostly waits
	c := startOwn(t, "--nodes=0")
	objects, clients := size(2000, 100000), 100
	l := newLoader(t, c.admin)
	if err := each(objects, 32, func(i int) error {
		return l.done(t.Context(), 0, http.MethodPost, "/api/v1/namespaces/default/configmaps", fmt.Appendf(nil, memoryMap, i), http.StatusCreated)
	}); err != nil {
		t.Fatal(err)
	}
	if fullMemory() {
		c.stableMemoryFor(t, memoryTimeout/2) // until the memory of the creations is released
	}
	c.checkMemoryReleased(t, func(ctx context.Context) error {
		return each(clients, clients, func(i int) error {
			return l.done(ctx, i*streams/4, http.MethodGet, "/api/v1/configmaps", nil, http.StatusOK, http.StatusTooManyRequests)
		})
	})
}

// TestWatchersThatNeverRead checks that watches whose clients do not read hold
// little memory, and that other clients are served at the same time.
func TestWatchersThatNeverRead(t *testing.T) {
	c := startOwn(t, "--nodes=0")
	watchers, updates := size(20, 500), size(100, 2000)
	const path = "/api/v1/namespaces/default/configmaps"
	object := func(i int) []byte {
		return fmt.Appendf(nil, `{"metadata":{"name":"large"},"data":{"a":"%0*d"}}`, 64<<10, i)
	}
	l := newLoader(t, c.admin)
	if err := l.done(t.Context(), 0, http.MethodPost, path, object(0), http.StatusCreated); err != nil {
		t.Fatal(err)
	}
	c.checkMemoryReleased(t, func(context.Context) error {
		for range watchers {
			if err := c.watchBlindly(t, path); err != nil {
				return err
			}
		}
		c.checkLatencyDuring(t, func(ctx context.Context) {
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

// watchBlindly starts a watch whose events the client never reads.
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

// Bounds of what all attacks together may leave: retainedHeap of the heap that a
// garbage collection leaves, and retainedMemory of the process's memory, which
// includes fragments. The second one is for soaks, on a machine that does nothing
// else: elsewhere the runtime gives memory back later.
const (
	retainedHeap   = 30 << 20
	retainedMemory = 100 << 20
)

// memoryRecord holds the memory of a server before and after each attack.
type memoryRecord struct {
	attacks []string // name and figures of each attack, for the error
	lowest  int64    // the lowest figure before an attack, in bytes
	heap    int64    // the live heap before all attacks, in bytes
	pid     int      // of the server
}

// recordMemory records the server's memory after an attack. An idle server
// takes ten seconds to release memory, so that checkReleased makes the check
// once, after all attacks.
func (c *cluster) recordMemory(t *testing.T, before int64) {
	t.Helper()
	r := &c.attacked
	r.attacks = append(r.attacks, fmt.Sprintf("%s: %d MB before, %d MB after", t.Name(), before>>20, c.memory(t)>>20))
	if r.lowest == 0 || before < r.lowest {
		r.lowest = before
	}
	r.pid = c.serverPID(t)
}

// releaseTimeout bounds the wait for memory that the last attacks used: watches can
// resume for 75 seconds, and every 15 seconds older events are dropped.
const releaseTimeout = 3 * time.Minute

// checkReleased waits until the server's memory is within the bounds of what the
// attacks may leave.
func checkReleased(c *cluster) error {
	r := &c.attacked
	if len(r.attacks) == 0 {
		return nil
	}
	deadline := time.NewTimer(releaseTimeout)
	defer deadline.Stop()
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		heap, err := liveHeap(c)
		if err != nil {
			return err
		}
		now, err := resident(r.pid)
		if err != nil {
			return err
		}
		if heap <= r.heap+retainedHeap && (*soak == 0 && *maxLatency == 0 || now <= r.lowest+retainedMemory) {
			fmt.Printf("the API server takes %d MB after the attacks, %d MB before; its live heap is %d MB, %d MB before\n", now>>20, r.lowest>>20, heap>>20, r.heap>>20)
			return nil
		}
		select {
		case <-deadline.C:
			return fmt.Errorf("the API server takes %d MB after the attacks, %d MB before; its live heap is %d MB, %d MB before:\n%s",
				now>>20, r.lowest>>20, heap>>20, r.heap>>20, strings.Join(r.attacks, "\n"))
		case <-again.C:
		}
	}
}
