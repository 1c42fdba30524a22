// Package proxy is the data path of HTTP routes: servers that pass requests on to the
// endpoints that a route table names.
//
//	client ─► Serve ─► ServeHTTP ── path, host ──► Table.Match ─► Route
//	            │ TLS: Table.Certificate                            │
//	            ▼                                                   ▼
//	      bounds: connections,                     balancer: an endpoint, another one if
//	      headers, time, shares                    the first does not take the request
//
// Set replaces the table between two requests: no connection ends, and requests that
// are being served keep their route.
package proxy

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/httpserver"
	"github.com/coracle-io/coracle/internal/ingress/table"
)

const (
	// maxHeaderBytes bounds the headers of a request.
	maxHeaderBytes = 64 << 10
	// stallTimeout bounds the time in which a client sends nothing of a body that is
	// being read or reads nothing of a response, and in which a backend reads nothing.
	stallTimeout = time.Minute
	// drainTimeout bounds the time for requests in progress when a server ends.
	drainTimeout = 5 * time.Second
	// httpPort and httpsPort are the ports that URLs leave out.
	httpPort, httpsPort = 80, 443
	// logVerbosity is the log level of requests.
	logVerbosity = 3
	// statusClientGone is the status of requests whose clients did not wait, in the
	// log and the metrics, as in nginx.
	statusClientGone = 499
	// maxHops bounds how often a request comes to the same proxy. More than one is no
	// mistake: a pod may ask for another host by the node's address, with the headers
	// that it got.
	maxHops = 5
)

// hopHeader has a secret of the proxy through which a request has come, and how often it
// has. By it a proxy refuses requests that an endpoint leads back to it again and again.
const hopHeader = "X-Coracle-Hop"

// Proxy serves the requests of any number of listeners by one table.
type Proxy struct {
	table       atomic.Pointer[table.Table]
	certificate *tls.Certificate // for names without another
	hop         string
	reverse     *httputil.ReverseProxy
	httpsPort   int // in redirections
	shares      *shares
	connections *connections
	metrics     *Metrics
}

// Config configures a Proxy.
type Config struct {
	// HTTPSPort is the port to which redirections to HTTPS lead.
	HTTPSPort int
	Metrics   *Metrics
}

// New returns a proxy with an empty table.
func New(c Config) (*Proxy, error) {
	certificate, err := selfSigned()
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	most := mostConnections()
	p := &Proxy{
		certificate: certificate, hop: rand.Text(), httpsPort: c.HTTPSPort,
		shares: newShares(most), connections: &connections{most: most, metrics: c.Metrics}, metrics: c.Metrics,
	}
	p.table.Store(new(table.Builder).Table())
	p.reverse = &httputil.ReverseProxy{
		Rewrite:      p.rewrite,
		Transport:    newBalancer(p.metrics, func(x *exchange) *table.Route { return p.table.Load().Match(x.host, x.path, x.request) }),
		ErrorHandler: fail, ModifyResponse: note,
		BufferPool: &buffers{}, ErrorLog: log.New(io.Discard, "", 0), // errors are in the request's line of the log
	}
	return p, nil
}

// Set makes the proxy serve by a table.
func (p *Proxy) Set(t *table.Table) {
	former := p.table.Swap(t)
	former.Owners(func(namespace, name string) {
		if !t.Has(namespace, name) {
			p.metrics.forget(namespace, name)
		}
	})
}

// exchange is a request with what becomes of it.
type exchange struct {
	request  *http.Request // as the client has sent it
	host     string
	path     table.Path
	route    *table.Route // nil if there is none
	endpoint string       // the last one that was tried
	status   int
	err      error
}

type exchangeKey struct{}

// exchangeOf returns the exchange that a request of ServeHTTP belongs to.
func exchangeOf(ctx context.Context) *exchange { return ctx.Value(exchangeKey{}).(*exchange) }

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	x := &exchange{request: r, host: table.Host(r.Host)}
	answer := &recorder{ResponseWriter: httpserver.LimitUnread(w, stallTimeout), exchange: x}
	defer func() { p.done(r, x, answer.bytes, time.Since(began)) }()
	if code := p.find(r, x); code != 0 {
		refuse(answer, code)
		return
	}
	if to := p.redirection(r, x.route); to != nil {
		redirect(answer, r, x, to)
		return
	}
	if most := x.route.MaxBody; most > 0 {
		if r.ContentLength > most {
			refuse(answer, http.StatusRequestEntityTooLarge)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, most)
	}
	release, ok := p.shares.acquire(x.route.Namespace)
	if !ok {
		p.metrics.refused.WithLabelValues("share").Inc()
		answer.Header().Set("Retry-After", "1")
		refuse(answer, http.StatusServiceUnavailable)
		return
	}
	defer release()
	ctx := r.Context()
	if x.route.Timeout > 0 {
		limited, cancel := context.WithTimeoutCause(ctx, x.route.Timeout, errNoAnswer)
		defer cancel()
		ctx = limited
	}
	out := r.WithContext(context.WithValue(ctx, exchangeKey{}, x))
	if r.Body != nil && r.Body != http.NoBody {
		out.Body = &patientBody{ReadCloser: r.Body, control: http.NewResponseController(w)}
	}
	p.reverse.ServeHTTP(answer, out)
}

// find sets the path and the route of an exchange. It returns the status to refuse the
// request with, or 0.
func (p *Proxy) find(r *http.Request, x *exchange) int {
	if r.Method == http.MethodConnect {
		return http.StatusMethodNotAllowed
	}
	if values, _ := httpserver.HeaderSize(r.Header); values > maxHeaderValues {
		return http.StatusRequestHeaderFieldsTooLarge
	}
	if p.hops(r) >= maxHops {
		return http.StatusLoopDetected
	}
	// The first is of http:path, which has neither host nor path. The second comes by
	// HTTP/2 alone, and a server of HTTP/1.1 would read more than a query in it.
	if r.URL.Opaque != "" || strings.Contains(r.URL.RawQuery, " ") {
		return http.StatusBadRequest
	}
	escaped := r.URL.EscapedPath()
	if escaped == "" { // of http://host
		escaped = "/"
	}
	if len(escaped) > maxPath {
		return http.StatusRequestURITooLong
	}
	if x.path, x.err = table.ParsePath(escaped); x.err != nil {
		return http.StatusBadRequest
	}
	t := p.table.Load()
	if x.route = t.Match(x.host, x.path, r); x.route == nil {
		return http.StatusNotFound
	}
	if r.TLS != nil && isMisdirected(t, r.TLS.ServerName, x.host) {
		return http.StatusMisdirectedRequest
	}
	return 0
}

// isMisdirected reports whether a TLS connection to a server name may not have requests
// to a host (RFC 9110, 15.5.20): it has begun with a certificate that the host does not
// have. Browsers send requests to all hosts of a certificate by one connection, such as
// those below the wildcard of another namespace.
func isMisdirected(t *table.Table, serverName, host string) bool {
	shown := t.Certificate(table.Host(serverName))
	return serverName != "" && shown != nil && shown != t.Certificate(host)
}

// hops returns how often a request has come to this proxy before.
func (p *Proxy) hops(r *http.Request) int {
	count, ours := strings.CutPrefix(r.Header.Get(hopHeader), p.hop+" ")
	if !ours {
		return 0
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 0 { // a backend that knows the secret says so
		return maxHops
	}
	return n
}

// redirection returns where a request that has a route is redirected, or nil.
func (p *Proxy) redirection(r *http.Request, route *table.Route) *table.Redirect {
	switch {
	case route.RedirectToHTTPS && r.TLS == nil:
		return &table.Redirect{Scheme: "https", Port: p.httpsPort, Code: http.StatusPermanentRedirect}
	case route.Filters != nil:
		return route.Filters.Redirect
	}
	return nil
}

// redirect answers with another URL.
func redirect(w http.ResponseWriter, r *http.Request, x *exchange, to *table.Redirect) {
	scheme, port, host := to.Scheme, to.Port, to.Host
	if scheme == "" {
		if scheme = "http"; r.TLS != nil {
			scheme = "https"
		}
		if port == 0 {
			port, _ = strconv.Atoi(localPort(r)) // 0 is left out
		}
	}
	if port == httpPort && scheme == "http" || port == httpsPort && scheme == "https" {
		port = 0
	}
	if host == "" {
		host = strings.Trim(x.host, "[]")
	}
	switch {
	case port != 0:
		host = net.JoinHostPort(host, strconv.Itoa(port))
	case strings.Contains(host, ":"): // an IPv6 address
		host = "[" + host + "]"
	}
	location := scheme + "://" + host + x.route.Changed(x.path, to.Path)
	if r.URL.RawQuery != "" {
		location += "?" + r.URL.RawQuery
	}
	if x.route.Filters != nil {
		x.route.Filters.Response.Apply(w.Header())
	}
	w.Header().Set("Location", location)
	w.WriteHeader(to.Code)
}

// localPort returns the port at which a request has come, "" if it is unknown.
func localPort(r *http.Request) string {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return ""
	}
	_, port, err := net.SplitHostPort(at.String())
	if err != nil {
		return ""
	}
	return port
}

// refuse answers with a status alone.
func refuse(w http.ResponseWriter, code int) {
	text := http.StatusText(code)
	if code == statusClientGone {
		text = "Client Closed Request"
	}
	http.Error(w, strconv.Itoa(code)+" "+text, code)
}

// rewrite sets what a backend gets of a request. What clients say of earlier proxies is
// dropped, because anybody can say it.
func (p *Proxy) rewrite(r *httputil.ProxyRequest) {
	x := exchangeOf(r.In.Context())
	out := r.Out
	out.URL.Scheme = "http"
	raw, filters := x.path.Raw, x.route.Filters
	if filters != nil {
		raw = x.route.Changed(x.path, filters.Rewrite.Path)
		out.Host = cmp.Or(filters.Rewrite.Host, out.Host)
	}
	if raw != out.URL.EscapedPath() {
		out.URL.Path, out.URL.RawPath = unescaped(raw), raw
	}
	out.URL.RawQuery = r.In.URL.RawQuery // as it came: ReverseProxy drops what it cannot parse
	for name := range out.Header {
		if isForwarding(name) {
			delete(out.Header, name)
		}
	}
	r.SetXForwarded()
	out.Header.Set("X-Real-Ip", out.Header.Get("X-Forwarded-For"))
	if port := localPort(r.In); port != "" {
		out.Header.Set("X-Forwarded-Port", port)
	}
	if filters != nil {
		filters.Request.Apply(out.Header)
	}
	out.Header.Set(hopHeader, p.hop+" "+strconv.Itoa(p.hops(r.In)+1))
	// A backend that switches to another protocol, such as h2c, would take requests
	// that this proxy never sees.
	if upgrade := out.Header.Get("Upgrade"); upgrade != "" && !strings.EqualFold(upgrade, "websocket") {
		out.Header.Del("Upgrade")
		out.Header.Del("Connection")
	}
}

// isForwarding reports whether a header says through which proxies a request came.
// Some servers read an underscore as a hyphen.
func isForwarding(name string) bool {
	if name == "" || name[0]|0x20 != 'x' && name[0]|0x20 != 'f' {
		return false
	}
	name = strings.ToLower(strings.ReplaceAll(name, "_", "-"))
	return strings.HasPrefix(name, "x-forwarded-") || name == "forwarded" || name == "x-real-ip" || name == strings.ToLower(hopHeader)
}

// note records the status of a response, and changes its headers as its trailers need and
// as the route says. Too many headers are an error. The status of a switch of protocols is not written to the recorder.
func note(r *http.Response) error {
	if values, _ := httpserver.HeaderSize(r.Header); values > maxHeaderValues {
		return errManyHeaders
	}
	x := exchangeOf(r.Request.Context())
	x.status = r.StatusCode
	if len(r.Trailer) > 0 { // HTTP/1.1 has no place for them after a body of a known length
		r.Header.Del("Content-Length")
	}
	if x.route.Filters != nil {
		x.route.Filters.Response.Apply(r.Header)
	}
	return nil
}

// Errors of the proxy's own.
var (
	errNoBackend   = errors.New("the route leads to a backend that there is not")
	errNoEndpoints = errors.New("the backend has no endpoints")
	errNoAnswer    = errors.New("the backend did not answer in time")
	errManyHeaders = errors.New("the backend has answered with too many headers")
	errStalled     = errors.New("the client has sent nothing of the body for too long")
)

// fail answers a request that no endpoint has answered.
func fail(w http.ResponseWriter, r *http.Request, err error) {
	x := exchangeOf(r.Context())
	x.err = err
	refuse(w, statusOf(r.Context(), err))
}

// statusOf returns the status for an error of the balancer.
func statusOf(ctx context.Context, err error) int {
	var tooLarge *http.MaxBytesError
	var client *clientError
	var network net.Error
	switch {
	case errors.As(err, &tooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, errStalled):
		return http.StatusRequestTimeout
	case errors.Is(err, errNoBackend):
		return http.StatusInternalServerError
	case errors.Is(err, errNoEndpoints):
		return http.StatusServiceUnavailable
	case errors.Is(err, errNoAnswer), errors.Is(context.Cause(ctx), errNoAnswer):
		return http.StatusGatewayTimeout
	case ctx.Err() != nil, errors.As(err, &client):
		return statusClientGone
	case errors.As(err, &network) && network.Timeout():
		return http.StatusGatewayTimeout
	}
	return http.StatusBadGateway
}

// done records a request.
func (p *Proxy) done(r *http.Request, x *exchange, bytes int64, took time.Duration) {
	p.metrics.record(r.Method, x, took)
	if x.route != nil && !p.table.Load().Has(x.route.Namespace, x.route.Name) {
		p.metrics.forget(x.route.Namespace, x.route.Name) // the Ingress has gone meanwhile
	}
	log := klog.FromContext(r.Context()).V(logVerbosity)
	if !log.Enabled() {
		return
	}
	values := []any{"client", r.RemoteAddr, "method", r.Method, "host", x.host, "path", x.path.Raw, "status", x.status, "bytes", bytes, "took", took}
	if x.route != nil {
		values = append(values, "ingress", klog.KRef(x.route.Namespace, x.route.Name), "endpoint", x.endpoint)
	}
	if x.err != nil {
		values = append(values, "err", x.err)
	}
	log.Info("Request", values...)
}

// recorder notes the status and the size of a response.
type recorder struct {
	http.ResponseWriter
	exchange *exchange
	bytes    int64
}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *recorder) WriteHeader(code int) {
	if code >= http.StatusOK { // not of an interim response
		w.exchange.status = code
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (w *recorder) Write(data []byte) (int, error) {
	n, err := w.ResponseWriter.Write(data)
	w.bytes += int64(n)
	return n, err
}

// patientBody is the body of a request whose client may take long in all, and must send
// something within stallTimeout whenever the proxy waits for it.
type patientBody struct {
	io.ReadCloser
	control *http.ResponseController
}

// Read implements io.Reader. The deadline must not stay set: the server reads on after
// the body, to notice that a client has gone.
func (b *patientBody) Read(data []byte) (int, error) {
	_ = b.control.SetReadDeadline(time.Now().Add(stallTimeout)) // fails if the connection has none
	n, err := b.ReadCloser.Read(data)
	_ = b.control.SetReadDeadline(time.Time{})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errStalled
	}
	return n, err
}

// bufferSize is the size of the buffers for bodies of responses.
const bufferSize = 32 << 10

// buffers implements httputil.BufferPool.
type buffers struct{ pool sync.Pool }

// Get implements httputil.BufferPool.
func (b *buffers) Get() []byte {
	if buffer, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return buffer[:]
	}
	return new([bufferSize]byte)[:]
}

// Put implements httputil.BufferPool.
func (b *buffers) Put(buffer []byte) { b.pool.Put((*[bufferSize]byte)(buffer)) }
