package proxy

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coracle-io/coracle/internal/ingress/table"
	"github.com/coracle-io/coracle/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

// newProxy returns a proxy that serves by a table.
func newProxy(t *testing.T, served *table.Table) *Proxy {
	t.Helper()
	p, err := New(Config{HTTPSPort: httpsPort, Metrics: NewMetrics()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, transport := range p.reverse.Transport.(*balancer).transports {
			transport.CloseIdleConnections()
		}
	})
	p.Set(served)
	return p
}

// serve serves until the test ends, and returns the address.
func serve(t *testing.T, p *Proxy, secure bool) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Serve(ctx, l, secure) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return l.Addr().String()
}

// client returns a client whose connections end with the test.
func client(t *testing.T) *http.Client {
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // tests look at the certificates themselves
		ForceAttemptHTTP2: true,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// backend starts a server for the test and returns its address.
func backend(t *testing.T, h http.HandlerFunc) netip.AddrPort {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return netip.MustParseAddrPort(server.Listener.Addr().String())
}

// routeTo returns a route to endpoints.
func routeTo(endpoints ...netip.AddrPort) *table.Route {
	b := &table.Backend{Name: "web/shop:80", Protocol: table.HTTP1}
	b.SetEndpoints(endpoints)
	return &table.Route{Namespace: "web", Name: "shop", Targets: []table.Target{{Weight: 1, Backend: b}}}
}

// tableOf returns a table with one route, for all requests.
func tableOf(t *testing.T, r *table.Route) *table.Table {
	t.Helper()
	var b table.Builder
	addRule(t, &b, "", "/", r)
	return b.Table()
}

func addRule(t *testing.T, b *table.Builder, host, prefix string, r *table.Route) {
	t.Helper()
	path, err := table.ParsePath(prefix)
	if err != nil {
		t.Fatal(err)
	}
	b.Add(host, table.Prefix, path, r)
}

// get returns the status and the body of an answer.
func get(t *testing.T, c *http.Client, url string) (int, string) {
	t.Helper()
	response, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// raw sends text to an address and returns the connection with a reader of answers.
func raw(t *testing.T, address, text string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(3 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

// answer reads an answer.
func answer(t *testing.T, from *bufio.Reader) (int, string) {
	t.Helper()
	response, err := http.ReadResponse(from, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// certificateFor returns a certificate that signs itself.
func certificateFor(t *testing.T, name string) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	encoded, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{encoded}, PrivateKey: key}
}

// shownHeaders answers with the headers of a request, one a line, sorted.
func shownHeaders(w http.ResponseWriter, r *http.Request) {
	lines := []string{"Host: " + r.Host, "URI: " + r.RequestURI}
	for name, values := range r.Header {
		lines = append(lines, name+": "+strings.Join(values, ","))
	}
	slices.Sort(lines)
	_, _ = io.WriteString(w, strings.Join(lines, "\n"))
}

// What a client says of earlier proxies does not reach a backend, in no spelling.
func TestForwardedHeaders(t *testing.T) {
	p := newProxy(t, tableOf(t, routeTo(backend(t, shownHeaders))))
	for scheme, secure := range map[string]bool{"http": false, "https": true} {
		at := serve(t, p, secure)
		request, err := http.NewRequest(http.MethodGet, scheme+"://"+at+"/a", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = "shop.example"
		for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Prefix", "X_Forwarded_For", "X-Real-IP", "X_Real-Ip", hopHeader} {
			request.Header.Set(name, "forged")
		}
		request.Header.Set("X-Other", "kept")
		response, err := client(t).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(body), "forged") {
			t.Errorf("%s: the backend got\n%s", scheme, body)
		}
		_, port, _ := net.SplitHostPort(at)
		lines := strings.Split(string(body), "\n")
		for _, want := range []string{
			"Host: shop.example", "URI: /a", "X-Forwarded-For: 127.0.0.1", "X-Forwarded-Host: shop.example", "X-Forwarded-Proto: " + scheme,
			"X-Forwarded-Port: " + port, "X-Real-Ip: 127.0.0.1", "X-Other: kept",
		} {
			if !slices.Contains(lines, want) {
				t.Errorf("%s: no %q in\n%s", scheme, want, body)
			}
		}
	}
}

// A path is passed on as the route was chosen by it: a backend that resolves dots
// itself finds none.
func TestPathsArePassedOnAsTheyMatched(t *testing.T) {
	uri := func(name string) netip.AddrPort {
		return backend(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, name+" "+r.RequestURI) })
	}
	var b table.Builder
	addRule(t, &b, "", "/", routeTo(uri("public")))
	addRule(t, &b, "", "/admin", routeTo(uri("admin")))
	at := serve(t, newProxy(t, b.Table()), false)
	for path, want := range map[string]string{
		"/x/../admin?a=%2e%2e/b": "admin /admin?a=%2e%2e/b",
		"/x/%2e%2e/admin":        "admin /admin",
		"//admin":                "admin //admin",
		"/admin/..":              "public /",
		"/a%2Fb/c%20d":           "public /a%2Fb/c%20d",
		"/x%2F..%2Fadmin":        "public /x%2F..%2Fadmin",
		"http://other/admin":     "admin /admin",
		"http://other":           "public /",
		"/a?100%&b=1;c=2&&d":     "public /a?100%&b=1;c=2&&d", // also a query that is not parsed alike everywhere
		"/a?":                    "public /a?",
	} {
		_, from := raw(t, at, "GET "+path+" HTTP/1.1\r\nHost: any\r\nConnection: close\r\n\r\n")
		if code, body := answer(t, from); code != http.StatusOK || body != want {
			t.Errorf("%s: %d %q, want %q", path, code, body, want)
		}
	}
}

func TestRefusals(t *testing.T) {
	var b table.Builder
	addRule(t, &b, "empty.example", "/", routeTo())
	secured := routeTo(backend(t, shownHeaders))
	secured.RedirectToHTTPS = true
	addRule(t, &b, "secured.example", "/", secured)
	p := newProxy(t, b.Table())
	at := serve(t, p, false)
	for _, test := range []struct {
		line, host string
		want       int
	}{
		{"GET / HTTP/1.1", "unknown.example", http.StatusNotFound},
		{"GET / HTTP/1.1", "empty.example", http.StatusServiceUnavailable},
		{"GET /%00 HTTP/1.1", "empty.example", http.StatusBadRequest},
		{"GET /%zz HTTP/1.1", "empty.example", http.StatusBadRequest},
		{"GET http:admin HTTP/1.1", "empty.example", http.StatusBadRequest},
		{"OPTIONS * HTTP/1.1", "empty.example", http.StatusOK}, // of the proxy itself
		{"CONNECT empty.example:80 HTTP/1.1", "empty.example", http.StatusMethodNotAllowed},
		{"GET / HTTP/1.1", "a b", http.StatusBadRequest},
		{"GET / HTTP/1.1", "secured.example", http.StatusPermanentRedirect},
	} {
		_, from := raw(t, at, test.line+"\r\nHost: "+test.host+"\r\nConnection: close\r\n\r\n")
		if code, _ := answer(t, from); code != test.want {
			t.Errorf("%s of %s: %d, want %d", test.line, test.host, code, test.want)
		}
	}
	request := httptest.NewRequest(http.MethodGet, "http://secured.example:80/a/../b?c=d", nil)
	w := httptest.NewRecorder()
	p.ServeHTTP(w, request)
	if got := w.Header().Get("Location"); got != "https://secured.example/b?c=d" {
		t.Errorf("redirected to %q", got)
	}
}

// Requests that two servers may read as different numbers of requests are refused, or
// are passed on in one form.
func TestSmuggling(t *testing.T) {
	var mu sync.Mutex
	var requests []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		requests = append(requests, fmt.Sprintf("%s %s %q", r.Method, r.RequestURI, body))
	}))
	t.Cleanup(server.Close)
	at := serve(t, newProxy(t, tableOf(t, routeTo(netip.MustParseAddrPort(server.Listener.Addr().String())))), false)
	const smuggled = "GET /smuggled HTTP/1.1\r\nX: "
	for what, text := range map[string]string{
		"two lengths":           "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 30\r\n\r\n" + smuggled,
		"an unknown encoding":   "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + smuggled,
		"two encodings":         "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + smuggled,
		"a space before colon":  "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + smuggled,
		"a negative length":     "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n" + smuggled,
		"two hosts":             "GET /a HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
		"a malformed chunk":     "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n" + smuggled,
		"a header without name": "GET /a HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n",
	} {
		_, from := raw(t, at, text)
		if code, _ := answer(t, from); code < 400 {
			t.Errorf("%s: %d", what, code)
		}
	}
	// RFC 9112, 6.3: the encoding overrides the length.
	_, from := raw(t, at, "POST /both HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nabcde\r\n0\r\n\r\n")
	if code, _ := answer(t, from); code != http.StatusOK {
		t.Errorf("both a length and an encoding: %d", code)
	}
	server.Close() // once it has answered
	mu.Lock()
	defer mu.Unlock()
	for _, request := range requests {
		if request != `POST /both "abcde"` && !strings.HasPrefix(request, "POST /a ") || strings.Contains(request, "smuggled") {
			t.Errorf("the backend got %s", request)
		}
	}
}

// An endpoint that leads back to the proxy ends a request after some rounds. A pod that
// asks for another host with the headers that it got is no loop.
func TestLoop(t *testing.T) {
	p := newProxy(t, tableOf(t, routeTo()))
	at := serve(t, p, false)
	var passed atomic.Int64
	again := backend(t, func(w http.ResponseWriter, r *http.Request) {
		passed.Add(1)
		out, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://"+at+r.RequestURI, nil)
		if err != nil {
			t.Error(err)
			return
		}
		out.Header = r.Header.Clone()
		out.Host = strings.TrimPrefix(r.Host, "gateway.")
		response, err := client(t).Do(out)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = response.Body.Close() }()
		w.WriteHeader(response.StatusCode)
	})
	var b table.Builder
	addRule(t, &b, "direct.example", "/", routeTo(netip.MustParseAddrPort(at)))
	addRule(t, &b, "loop.example", "/", routeTo(again))
	addRule(t, &b, "gateway.shop.example", "/", routeTo(again))
	addRule(t, &b, "shop.example", "/", routeTo(backend(t, shownHeaders)))
	p.Set(b.Table())
	for host, want := range map[string]int{"direct.example": http.StatusLoopDetected, "loop.example": http.StatusLoopDetected, "gateway.shop.example": http.StatusOK} {
		_, from := raw(t, at, "GET / HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n")
		if code, _ := answer(t, from); code != want {
			t.Errorf("%s: %d, want %d", host, code, want)
		}
	}
	if n := passed.Load(); n != maxHops+1 { // of the loop, and of the gateway
		t.Errorf("the pods have passed on %d requests, want %d", n, maxHops+1)
	}
}

// A request by HTTP/2 whose query has a space would be two words of a request line of
// HTTP/1.1.
func TestSpacesInQueries(t *testing.T) {
	at := serve(t, newProxy(t, tableOf(t, routeTo(backend(t, shownHeaders)))), true)
	request, err := http.NewRequest(http.MethodGet, "https://"+at+"/a", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.URL.RawQuery = "b HTTP/1.1"
	response, err := client(t).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.ProtoMajor != 2 || response.StatusCode != http.StatusBadRequest {
		t.Errorf("%s %s, want %d by HTTP/2", response.Proto, response.Status, http.StatusBadRequest)
	}
}

func TestBodyLimit(t *testing.T) {
	route := routeTo(backend(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprint(w, n)
	}))
	route.MaxBody = 100
	at := serve(t, newProxy(t, tableOf(t, route)), false)
	for _, test := range []struct{ bytes, want int }{{100, http.StatusOK}, {101, http.StatusRequestEntityTooLarge}} {
		text := strings.Repeat("x", test.bytes)
		for _, body := range []io.Reader{strings.NewReader(text), io.MultiReader(strings.NewReader(text))} { // the second has no known length
			response, err := client(t).Post("http://"+at, "text/plain", body)
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			if response.StatusCode != test.want {
				t.Errorf("%d bytes, of length %d: %d, want %d", test.bytes, response.Request.ContentLength, response.StatusCode, test.want)
			}
		}
	}
}

// stalled is a body whose client sends nothing.
type stalled struct{}

func (stalled) Read([]byte) (int, error) {
	return 0, &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
}
func (stalled) Close() error { return nil }

func TestStalledBody(t *testing.T) {
	p := newProxy(t, tableOf(t, routeTo(backend(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))))
	request := httptest.NewRequest(http.MethodPost, "http://a/", stalled{})
	request.ContentLength = 10
	w := httptest.NewRecorder()
	p.ServeHTTP(w, request)
	if w.Code != http.StatusRequestTimeout {
		t.Errorf("%d, want %d", w.Code, http.StatusRequestTimeout)
	}
}

func TestNoAnswerInTime(t *testing.T) {
	ends := make(chan struct{})
	route := routeTo(backend(t, func(http.ResponseWriter, *http.Request) { <-ends }))
	t.Cleanup(func() { close(ends) }) // before the backend is closed, which waits for it
	route.AnswerTimeout = time.Millisecond
	at := serve(t, newProxy(t, tableOf(t, route)), false)
	if code, _ := get(t, client(t), "http://"+at); code != http.StatusGatewayTimeout {
		t.Errorf("%d, want %d", code, http.StatusGatewayTimeout)
	}
}
