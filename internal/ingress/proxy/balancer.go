package proxy

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coracle-io/coracle/internal/ingress/table"
	"github.com/coracle-io/coracle/internal/supervise"
)

const (
	// dialTimeout bounds the time to connect to an endpoint.
	dialTimeout = 5 * time.Second
	// idleTimeout is how long an unused connection to an endpoint stays open. It is
	// shorter than the time after which usual servers close theirs, five seconds for
	// Node.js: a request that meets the end of its connection may not be repeated.
	idleTimeout = 4 * time.Second
	// maxIdle bounds the unused connections to all endpoints and to one.
	maxIdle, maxIdleOfOne = 1024, 64
	// maxAnswerHeaderBytes bounds the headers of a response.
	maxAnswerHeaderBytes = 64 << 10
	// maxAttempts bounds the endpoints that one request is sent to.
	maxAttempts = 5
	// rounds is how often the endpoints are asked for when all that are known refuse
	// connections: those of a rollout may be gone, and the table not know it yet.
	rounds = 4
	// firstPause is the pause before the second round. Each further one is twice as
	// long.
	firstPause = 50 * time.Millisecond
	// avoidance is how long an endpoint that did not take a connection comes last.
	avoidance = 5 * time.Second
	// maxFailing bounds the endpoints that are remembered as failing.
	maxFailing = 1024
)

// balancer sends requests to the endpoints of their routes. It implements
// http.RoundTripper for requests that belong to an exchange.
type balancer struct {
	transports map[table.Protocol]*http.Transport
	failing    failing
	metrics    *Metrics
	route      func(*exchange) *table.Route // by the newest table
	pause      func(context.Context, time.Duration) bool
}

func newBalancer(m *Metrics, route func(*exchange) *table.Route) *balancer {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	transport := func(configure func(*http.Protocols)) *http.Transport {
		t := &http.Transport{
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := dialer.DialContext(ctx, network, address)
				if err != nil {
					return nil, err
				}
				return backendConn{conn}, nil
			},
			DisableCompression: true, // bodies pass as they are
			MaxIdleConns:       maxIdle, MaxIdleConnsPerHost: maxIdleOfOne, IdleConnTimeout: idleTimeout,
			MaxResponseHeaderBytes: maxAnswerHeaderBytes, ExpectContinueTimeout: time.Second,
			Protocols: new(http.Protocols),
			HTTP2:     &http.HTTP2Config{SendPingTimeout: 15 * time.Second, WriteByteTimeout: stallTimeout, MaxReceiveBufferPerStream: streamBuffer},
		}
		configure(t.Protocols)
		return t
	}
	return &balancer{
		transports: map[table.Protocol]*http.Transport{
			table.HTTP1: transport(func(p *http.Protocols) { p.SetHTTP1(true) }),
			table.H2C:   transport(func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }),
		},
		metrics: m, route: route, pause: supervise.Pause,
	}
}

// backendConn is a connection to an endpoint, which must read what is sent.
type backendConn struct{ net.Conn }

// Write implements net.Conn.
func (c backendConn) Write(data []byte) (int, error) {
	if err := c.Conn.SetWriteDeadline(time.Now().Add(stallTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(data)
}

// RoundTrip sends a request to an endpoint. If the connection fails before anything was
// sent, or the request may be repeated, it tries further endpoints.
func (b *balancer) RoundTrip(r *http.Request) (*http.Response, error) {
	x := exchangeOf(r.Context())
	backend, endpoints, err := pick(x.route)
	if err != nil {
		return nil, err
	}
	body := &unclosedBody{ReadCloser: r.Body}
	if r.Body != nil {
		r = r.WithContext(r.Context())
		r.Body = body
	}
	var tried []netip.AddrPort
	began, wait := time.Now(), firstPause
	for round, attempt := 1, 1; ; attempt++ {
		endpoint, ok := b.choose(endpoints, tried)
		if !ok {
			return nil, errNoEndpoints
		}
		x.endpoint = endpoint.String()
		response, err := b.send(r, backend.Protocol, endpoint, x.route.AnswerTimeout)
		if err == nil {
			return response, nil
		}
		refused := isDial(err)
		if refused {
			b.failing.add(endpoint)
		}
		if failed := body.failed.Load(); failed != nil {
			return nil, failed
		}
		if r.Context().Err() != nil || errors.Is(err, errNoAnswer) || body.read.Load() || !refused && !repeatable(r) {
			return nil, err
		}
		b.metrics.retries.Inc()
		if tried = append(tried, endpoint); attempt < maxAttempts && len(tried) < len(endpoints) {
			continue
		}
		if round == rounds || !refused || time.Since(began) >= dialTimeout || !b.pause(r.Context(), wait) {
			return nil, err
		}
		round, attempt, tried, wait = round+1, 0, nil, 2*wait
		if newest := b.route(x); newest != nil {
			x.route = newest
		}
		if backend, endpoints, err = pick(x.route); err != nil {
			return nil, err
		}
	}
}

// pick returns a backend of a route that has endpoints, with those that it has now.
func pick(r *table.Route) (*table.Backend, []netip.AddrPort, error) {
	backend := r.Pick()
	if backend == nil {
		return nil, nil, errNoEndpoints
	}
	if backend.Invalid {
		return nil, nil, errNoBackend
	}
	endpoints := backend.Endpoints()
	if len(endpoints) == 0 {
		return nil, nil, errNoEndpoints
	}
	return backend, endpoints, nil
}

// choose returns an endpoint by chance that was not tried before: one that has failed
// lately only if there is no other.
func (b *balancer) choose(endpoints, tried []netip.AddrPort) (chosen netip.AddrPort, ok bool) {
	start := rand.IntN(len(endpoints))
	for i := range endpoints {
		e := endpoints[(start+i)%len(endpoints)]
		switch {
		case slices.Contains(tried, e):
		case !b.failing.has(e):
			return e, true
		case !ok:
			chosen, ok = e, true
		}
	}
	return chosen, ok
}

// send sends a request to an endpoint. It returns errNoAnswer if the headers of the
// response do not come within a time after the request was sent; 0 is no bound.
func (b *balancer) send(r *http.Request, p table.Protocol, to netip.AddrPort, timeout time.Duration) (*http.Response, error) {
	ctx := r.Context()
	var waiting *answerTimer
	if timeout > 0 {
		limited, cancel := context.WithCancelCause(ctx) // ends with the request that the client has sent
		waiting = &answerTimer{limit: timeout, expire: func() { cancel(errNoAnswer) }}
		ctx = httptrace.WithClientTrace(limited, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { waiting.start() }})
	}
	out := r.WithContext(ctx)
	at := *r.URL
	at.Host = to.String()
	out.URL = &at
	if p == table.H2C && out.Header.Get("Upgrade") != "" { // HTTP/2 has no such header
		out.Header = out.Header.Clone()
		out.Header.Del("Upgrade")
		out.Header.Del("Connection")
	}
	response, err := b.transports[p].RoundTrip(out)
	if waiting != nil {
		waiting.stop()
		if errors.Is(context.Cause(ctx), errNoAnswer) {
			if err == nil {
				_ = response.Body.Close() // the time was up while the response came
			}
			return nil, errNoAnswer
		}
	}
	return response, err
}

// answerTimer waits for an answer. The request may have been sent after the answer has
// come.
type answerTimer struct {
	limit  time.Duration
	expire func()

	mu      sync.Mutex // guards the following
	timer   *time.Timer
	stopped bool
}

func (t *answerTimer) start() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return
	}
	if t.timer != nil { // the transport has sent the request again
		t.timer.Stop()
	}
	t.timer = time.AfterFunc(t.limit, t.expire)
}

func (t *answerTimer) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	if t.timer != nil {
		t.timer.Stop()
	}
}

// isDial reports whether an error means that there was no connection.
func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// repeatable reports whether a request may reach two endpoints. It is what net/http
// repeats, too.
func repeatable(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return r.Body == nil
	}
	return false
}

// unclosedBody is a body that stays open when an endpoint does not take it. A transport
// may still read when RoundTrip has returned.
type unclosedBody struct {
	io.ReadCloser
	read   atomic.Bool // whether a transport has begun to read
	failed atomic.Pointer[clientError]
}

// clientError is an error of the client's side of a request.
type clientError struct{ error }

// Unwrap returns the error.
func (e *clientError) Unwrap() error { return e.error }

// Read implements io.Reader.
func (b *unclosedBody) Read(data []byte) (int, error) {
	b.read.Store(true)
	n, err := b.ReadCloser.Read(data)
	if err != nil && !errors.Is(err, io.EOF) {
		b.failed.Store(&clientError{err})
	}
	return n, err
}

// Close implements io.Closer.
func (b *unclosedBody) Close() error { return nil }

// failing remembers the endpoints that did not take a connection lately.
type failing struct {
	size  atomic.Int64 // of until
	mu    sync.Mutex   // guards the following
	until map[netip.AddrPort]time.Time
}

func (f *failing) add(e netip.AddrPort) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.until == nil || len(f.until) >= maxFailing {
		f.until = map[netip.AddrPort]time.Time{}
	}
	f.until[e] = time.Now().Add(avoidance)
	f.size.Store(int64(len(f.until)))
}

func (f *failing) has(e netip.AddrPort) bool {
	if f.size.Load() == 0 {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	until, ok := f.until[e]
	if ok && time.Now().After(until) {
		delete(f.until, e)
		f.size.Store(int64(len(f.until)))
		return false
	}
	return ok
}

// unescaped returns the decoded form of an escaped path that was decoded before.
func unescaped(path string) string {
	decoded, err := url.PathUnescape(path)
	if err != nil {
		return path
	}
	return decoded
}
