package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/coracle-io/coracle/internal/freeport"
	"github.com/coracle-io/coracle/internal/supervise"
)

// dead returns an endpoint that refuses connections.
func dead(t *testing.T) netip.AddrPort {
	t.Helper()
	return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(freeport.For(t)))
}

// An endpoint that refuses a connection has got nothing: any request goes to another.
func TestRefusedConnections(t *testing.T) {
	live := backend(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, r.Method+" "+string(body))
	})
	p := newProxy(t, tableOf(t, routeTo(dead(t), live, dead(t))))
	at := serve(t, p, false)
	c := client(t)
	for range 20 {
		if code, body := get(t, c, "http://"+at); code != http.StatusOK || body != "GET " {
			t.Errorf("GET: %d %q", code, body)
		}
		response, err := c.Post("http://"+at, "text/plain", strings.NewReader("content"))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK || string(body) != "POST content" {
			t.Errorf("POST: %d %q", response.StatusCode, body)
		}
	}
}

// breaking is an endpoint that reads a request and closes the connection.
func breaking(t *testing.T, requests *atomic.Int64) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				requests.Add(1)
			}
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-ended
	})
	return netip.MustParseAddrPort(l.Addr().String())
}

// A request that an endpoint may have begun to act on is repeated only if that does no
// harm.
func TestBrokenConnections(t *testing.T) {
	var requests atomic.Int64
	broken := breaking(t, &requests)
	live := backend(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "live") })
	p := newProxy(t, tableOf(t, routeTo(broken, live)))
	at := serve(t, p, false)
	c := client(t)
	for range 20 {
		if code, body := get(t, c, "http://"+at); code != http.StatusOK || body != "live" {
			t.Errorf("GET: %d %q", code, body)
		}
	}
	p.Set(tableOf(t, routeTo(broken)))
	before := requests.Load()
	response, err := c.Post("http://"+at, "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusBadGateway || requests.Load() != before+1 {
		t.Errorf("POST: %d, and the endpoint got %d requests, want 1", response.StatusCode, requests.Load()-before)
	}
}

// When all known endpoints have gone, a request waits for the table that knows the new
// ones.
func TestEndpointsThatTheTableDoesNotKnowYet(t *testing.T) {
	live := backend(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "live") })
	p := newProxy(t, tableOf(t, routeTo(dead(t))))
	p.reverse.Transport.(*balancer).pause = func(context.Context, time.Duration) bool {
		p.Set(tableOf(t, routeTo(live)))
		return true
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "http://a/", strings.NewReader("content")))
	if w.Code != http.StatusOK || w.Body.String() != "live" {
		t.Errorf("%d %q", w.Code, w.Body)
	}
	// If none comes, the answer says so.
	pauses := 0
	p.reverse.Transport.(*balancer).pause = func(context.Context, time.Duration) bool {
		pauses++
		return true
	}
	p.Set(tableOf(t, routeTo(dead(t))))
	w = httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://a/", nil))
	if w.Code != http.StatusBadGateway || pauses != rounds-1 {
		t.Errorf("%d after %d pauses, want %d after %d", w.Code, pauses, http.StatusBadGateway, rounds-1)
	}
}

// A rolling update of a backend under load loses no request.
func TestRollingUpdateLosesNoRequest(t *testing.T) {
	start := func() (*httptest.Server, netip.AddrPort) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
		return server, netip.MustParseAddrPort(server.Listener.Addr().String())
	}
	server, endpoint := start()
	p := newProxy(t, tableOf(t, routeTo(endpoint)))
	at := serve(t, p, false)
	var asked, lost atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const clients = 4
	ended := make(chan struct{}, clients)
	for range clients {
		c := client(t)
		go func() {
			defer func() { ended <- struct{}{} }()
			for ctx.Err() == nil {
				response, err := c.Get("http://" + at)
				if err != nil {
					lost.Add(1)
					t.Errorf("request: %v", err)
					continue
				}
				body, err := io.ReadAll(response.Body)
				_ = response.Body.Close()
				if asked.Add(1); err != nil || response.StatusCode != http.StatusOK || string(body) != "ok" {
					lost.Add(1)
					t.Errorf("answer: %s %q, %v", response.Status, body, err)
				}
			}
		}()
	}
	for range 30 {
		next, at := start()
		p.Set(tableOf(t, routeTo(endpoint, at)))
		for before := asked.Load(); asked.Load() < before+20 && lost.Load() == 0; { // all of them have met both
			supervise.Pause(ctx, time.Millisecond)
		}
		// The endpoint ends before the table says so, as a pod may.
		server.Close()
		p.Set(tableOf(t, routeTo(at)))
		server, endpoint = next, at
	}
	cancel()
	for range clients {
		<-ended
	}
	server.Close()
	t.Logf("%d requests, %d lost", asked.Load(), lost.Load())
}

func TestShares(t *testing.T) {
	s := newShares(8)
	var releases []func()
	for {
		release, ok := s.acquire("greedy")
		if !ok {
			break
		}
		releases = append(releases, release)
	}
	if len(releases) != 4 {
		t.Errorf("one namespace has %d of 8", len(releases))
	}
	release, ok := s.acquire("other")
	if !ok {
		t.Fatal("there is no room for another namespace")
	}
	release()
	for _, release := range releases {
		release()
	}
	if s.all != 0 || len(s.count) != 0 {
		t.Errorf("%d requests are left, of %v", s.all, s.count)
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	p := newProxy(t, tableOf(t, routeTo()))
	p.connections.most = 2
	at := serve(t, p, false)
	const request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	_, first := raw(t, at, request)
	answer(t, first)
	for range 2 {
		_, further := raw(t, at, request)
		answer(t, further)
	}
	if _, err := first.ReadByte(); err == nil {
		t.Error("the oldest connection is open, although there are more than may be")
	}
	if got := testutil.ToFloat64(p.metrics.open); got != 2 {
		t.Errorf("%v connections are open, want 2", got)
	}
	if got := testutil.ToFloat64(p.metrics.refused.WithLabelValues("connection")); got != 1 {
		t.Errorf("%v connections have given way, want 1", got)
	}
}

// The headers of requests and of responses are bounded in number, and paths in length.
func TestManyHeaders(t *testing.T) {
	set := func(h http.Header, n int) {
		for i := range n {
			h.Set(fmt.Sprintf("X-Header-%d", i), "v")
		}
	}
	at := serve(t, newProxy(t, tableOf(t, routeTo(backend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/many" {
			set(w.Header(), maxHeaderValues+1)
		}
		_, _ = io.WriteString(w, "ok")
	})))), false)
	c := client(t)
	for _, test := range []struct {
		path          string
		headers, want int
	}{
		{"/", maxHeaderValues / 2, http.StatusOK}, {"/", maxHeaderValues + 1, http.StatusRequestHeaderFieldsTooLarge}, {"/many", 0, http.StatusBadGateway},
		{strings.Repeat("/", maxPath), 0, http.StatusOK}, {strings.Repeat("/", maxPath+1), 0, http.StatusRequestURITooLong},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at+test.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		set(r.Header, test.headers)
		response, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != test.want {
			t.Errorf("%.20s with %d headers: %d, want %d", test.path, test.headers, response.StatusCode, test.want)
		}
		_ = response.Body.Close()
	}
}

// Headers that are not complete are bounded, at the cost of who has sent most of them, and
// of no connection from before whose request was complete.
func TestHeadersInProgressAreBounded(t *testing.T) {
	p := newProxy(t, tableOf(t, routeTo(backend(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))))
	p.connections.most = 8
	at := serve(t, p, false)
	const request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	kept, answered := raw(t, at, request)
	if code, body := answer(t, answered); code != http.StatusOK || body != "ok" {
		t.Errorf("the first request: %d %q", code, body)
	}
	large, unanswered := raw(t, at, "GET / HTTP/1.1\r\nHost: a\r\nX-Fill: ")
	_, _ = io.WriteString(large, strings.Repeat("x", 8*headBytes)) // it may be closed meanwhile
	if _, err := unanswered.ReadByte(); err == nil {
		t.Error("the connection with many headers is answered")
	}
	if got := testutil.ToFloat64(p.metrics.refused.WithLabelValues("connection")); got != 1 {
		t.Errorf("%v connections have given way, want 1", got)
	}
	if _, err := io.WriteString(kept, request); err != nil {
		t.Fatal(err)
	}
	if code, body := answer(t, answered); code != http.StatusOK || body != "ok" {
		t.Errorf("the connection from before: %d %q", code, body)
	}
	p.connections.mu.Lock()
	defer p.connections.mu.Unlock()
	if n := p.connections.heads.Total(); n != 0 {
		t.Errorf("%d bytes of headers are counted after all requests", n)
	}
}

// What is kept of a body that the other side does not take is within the memory of a
// connection, in both directions.
func TestUnreadBodiesAreBounded(t *testing.T) {
	p := newProxy(t, tableOf(t, routeTo()))
	for protocol, transport := range p.reverse.Transport.(*balancer).transports {
		if n := transport.HTTP2.MaxReceiveBufferPerStream; n <= 0 || n > connectionMemory {
			t.Errorf("a response by %s has a buffer of %d bytes", protocol, n)
		}
		if n := transport.MaxResponseHeaderBytes; n <= 0 || n > connectionMemory {
			t.Errorf("the headers of a response by %s may have %d bytes", protocol, n)
		}
	}
	if n := p.newServer(t.Context(), nil).HTTP2.MaxReceiveBufferPerStream; n <= 0 || n > connectionMemory {
		t.Errorf("a request has a buffer of %d bytes", n)
	}
}

// The metrics of an Ingress end with it, and clients cannot make more of them.
func TestMetrics(t *testing.T) {
	p := newProxy(t, tableOf(t, routeTo(backend(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(799) }))))
	for _, method := range []string{"GET", "GET", "WHATEVER", "ELSE"} {
		p.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, "http://a/", nil))
	}
	for labels, want := range map[[4]string]float64{{"web", "shop", "GET", "other"}: 2, {"web", "shop", "other", "other"}: 2} {
		if got := testutil.ToFloat64(p.metrics.requests.WithLabelValues(labels[:]...)); got != want {
			t.Errorf("%v: %v requests, want %v", labels, got, want)
		}
	}
	p.Set(tableOf(t, routeTo()))
	if n := testutil.CollectAndCount(p.metrics.requests); n != 2 {
		t.Errorf("%d series of an Ingress that is there still, want 2", n)
	}
	other := routeTo()
	other.Name = "other"
	p.Set(tableOf(t, other))
	if n := testutil.CollectAndCount(p.metrics); n != 2 { // of retries and open connections
		t.Errorf("%d series without an Ingress, want 2", n)
	}
	// Nor does a request that ends after its Ingress bring them back.
	p.Set(tableOf(t, routeTo(backend(t, func(http.ResponseWriter, *http.Request) { p.Set(tableOf(t, other)) }))))
	p.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "http://a/", nil))
	if n := testutil.CollectAndCount(p.metrics); n != 2 {
		t.Errorf("%d series after the last request of an Ingress that has gone, want 2", n)
	}
}
