package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coracle-io/coracle/internal/ingress/proxy"
	routes "github.com/coracle-io/coracle/internal/ingress/table"
)

const (
	ingressHosts    = 1000
	ingressRequests = 50_000
	ingressRounds   = 3
	// changeTime is how long backends or certificates change under load, and changePause
	// the time between two changes.
	changeTime  = 20 * time.Second
	changePause = 50 * time.Millisecond
)

// ingressHost returns the name of the i-th host.
func ingressHost(i int) string { return fmt.Sprintf("host-%d.example", i%ingressHosts) }

// measureIngress measures the proxy of Ingresses beside net/http's ReverseProxy, which
// only looks a host up in a map: what that takes is the least that a proxy in Go takes.
// Proxies, backend and clients are in this process. Then backends and certificates
// change under load, which no request may notice.
func measureIngress(ctx context.Context, s *settings, _ *cluster, t *table) error {
	p, err := proxy.New(proxy.Config{HTTPSPort: 443, Metrics: proxy.NewMetrics()})
	if err != nil {
		return err
	}
	serving, stop := context.WithCancel(ctx)
	var servers sync.WaitGroup
	defer servers.Wait()
	defer stop()
	listen := func(secure bool) (*entry, error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		servers.Go(func() { _ = p.Serve(serving, l, secure) })
		return newEntry(l.Addr().String(), secure), nil
	}
	plain, err := listen(false)
	if err != nil {
		return err
	}
	defer plain.close()
	secure, err := listen(true)
	if err != nil {
		return err
	}
	defer secure.close()
	if err := measureIngressRate(ctx, s, p, plain, t); err != nil {
		return err
	}
	if err := measureRollingBackends(ctx, s, p, plain, t); err != nil {
		return err
	}
	return measureCertificates(ctx, s, p, secure, t)
}

// measureIngressRate measures requests a second of both proxies, in turn.
func measureIngressRate(ctx context.Context, s *settings, p *proxy.Proxy, own *entry, t *table) error {
	b, err := startBackend()
	if err != nil {
		return err
	}
	defer b.end(ctx)
	p.Set(ingressTable(nil, b))
	least, err := startReverseProxy(b)
	if err != nil {
		return err
	}
	defer least.end(ctx)
	beside := newEntry(least.address.String(), false)
	defer beside.close()
	var best [2]outcome
	for range ingressRounds {
		for i, e := range []*entry{own, beside} {
			o, err := parallel(ctx, ingressRequests, s.clients, e.get)
			if err != nil {
				return err
			}
			if o.rate > best[i].rate {
				best[i] = o
			}
		}
	}
	of := fmt.Sprintf("ingress, %d hosts, %d clients: ", ingressHosts, s.clients)
	t.add(of+"this proxy", "", "%v", best[0])
	t.add(of+"net/http's ReverseProxy alone, the least", "", "%v", best[1])
	return nil
}

// measureRollingBackends replaces the backend again and again, as a rolling update does:
// the new one serves before the table has it, and the former one ends, with the
// connections that are idle, after the table has lost it.
func measureRollingBackends(ctx context.Context, s *settings, p *proxy.Proxy, e *entry, t *table) error {
	former, err := startBackend()
	if err != nil {
		return err
	}
	defer func() { former.end(ctx) }()
	p.Set(ingressTable(nil, former))
	n, changes, err := e.under(ctx, s.clients, func() error {
		next, err := startBackend()
		if err != nil {
			return err
		}
		p.Set(ingressTable(nil, former, next))
		p.Set(ingressTable(nil, next))
		former.end(ctx)
		former = next
		return nil
	})
	if err != nil {
		return err
	}
	t.add("ingress: requests lost while backends are replaced", "0", "%d of %d in %d replacements%s", n.failed, n.sent, changes, n.reason())
	return nil
}

// measureCertificates replaces the certificate of all hosts again and again, while clients
// make a new connection for each request.
func measureCertificates(ctx context.Context, s *settings, p *proxy.Proxy, e *entry, t *table) error {
	b, err := startBackend()
	if err != nil {
		return err
	}
	defer b.end(ctx)
	serial := int64(0)
	change := func() error {
		serial++
		c, err := ingressCertificate(serial)
		if err != nil {
			return err
		}
		p.Set(ingressTable(c, b))
		return nil
	}
	if err := change(); err != nil {
		return err
	}
	n, changes, err := e.under(ctx, s.clients, change)
	if err != nil {
		return err
	}
	t.add("ingress: requests lost while certificates are replaced", "0", "%d of %d in %d replacements%s", n.failed, n.sent, changes, n.reason())
	return nil
}

// ingressTable returns a table in which all hosts have the given backends, and the
// certificate if there is one.
func ingressTable(c *tls.Certificate, backends ...*httpBackend) *routes.Table {
	var endpoints []netip.AddrPort
	for _, b := range backends {
		endpoints = append(endpoints, b.address)
	}
	of := &routes.Backend{Name: "bench/web:80", Protocol: routes.HTTP1}
	of.SetEndpoints(endpoints)
	root, err := routes.ParsePath("/")
	if err != nil {
		panic(err) // it is a constant
	}
	var builder routes.Builder
	for i := range ingressHosts {
		route := &routes.Route{Namespace: "bench", Name: "web", Targets: []routes.Target{{Weight: 1, Backend: of}}}
		builder.Add(ingressHost(i), routes.Prefix, root, route)
		if c != nil {
			builder.AddCertificate(ingressHost(i), c)
		}
	}
	return builder.Table()
}

// ingressCertificate returns a certificate for all hosts, which no client trusts.
func ingressCertificate(serial int64) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), DNSNames: []string{"*.example"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	encoded, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return &tls.Certificate{Certificate: [][]byte{encoded}, PrivateKey: key}, err
}

// httpBackend is an HTTP server of this process.
type httpBackend struct {
	server  *http.Server
	address netip.AddrPort
	ended   chan struct{}
}

func startHTTP(handler http.Handler) (*httpBackend, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &httpBackend{
		server: &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}, address: netip.MustParseAddrPort(l.Addr().String()), ended: make(chan struct{}),
	}
	go func() {
		defer close(b.ended)
		_ = b.server.Serve(l)
	}()
	return b, nil
}

// startBackend starts a server that answers all requests with a line.
func startBackend() (*httpBackend, error) {
	return startHTTP(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello\n") }))
}

// startReverseProxy starts a proxy that passes the requests to all hosts on to a backend.
func startReverseProxy(b *httpBackend) (*httpBackend, error) {
	targets := map[string]*url.URL{}
	for i := range ingressHosts {
		targets[ingressHost(i)] = &url.URL{Scheme: "http", Host: b.address.String()}
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 1000}
	p, err := startHTTP(&httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(targets[strings.ToLower(r.In.Host)])
			r.Out.Host = r.In.Host
			r.SetXForwarded()
		},
	})
	if err == nil {
		p.server.RegisterOnShutdown(transport.CloseIdleConnections)
	}
	return p, err
}

// end ends the server as a pod does: requests in progress are finished.
func (b *httpBackend) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := b.server.Shutdown(ctx); err != nil {
		_ = b.server.Close()
	}
	<-b.ended
}

// entry is a proxy as clients see it.
type entry struct {
	address   string
	secure    bool
	transport *http.Transport
}

// newEntry returns the entry at an address. With TLS, each request has a connection of
// its own, because the name of the host is part of it.
func newEntry(address string, secure bool) *entry {
	e := &entry{address, secure, &http.Transport{
		MaxIdleConnsPerHost: 1000, DisableKeepAlives: secure,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}}
	if secure {
		e.transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} // all that counts is an answer
	}
	return e
}

func (e *entry) close() { e.transport.CloseIdleConnections() }

// get sends the i-th request and reads the answer.
func (e *entry) get(ctx context.Context, i int) error {
	target := "http://" + e.address
	if e.secure {
		target = "https://" + ingressHost(i)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody)
	if err != nil {
		return err
	}
	r.Host = ingressHost(i)
	response, err := e.transport.RoundTrip(r)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, response.Body)
	if err = errors.Join(err, response.Body.Close()); err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return err
}

// tally counts requests.
type tally struct {
	mu           sync.Mutex // guards the rest
	sent, failed int
	first        error // of those that failed
}

func (n *tally) add(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sent++
	if err != nil {
		n.failed++
		if n.first == nil {
			n.first = err
		}
	}
}

// reason says why the first of the requests failed, if any has.
func (n *tally) reason() string {
	if n.first == nil {
		return ""
	}
	return ", the first by: " + n.first.Error()
}

// under makes changes while clients send requests, for changeTime. It returns the
// requests and how many changes there were.
func (e *entry) under(ctx context.Context, clients int, change func() error) (*tally, int, error) {
	n := &tally{}
	loading, stop := context.WithCancel(ctx)
	var workers sync.WaitGroup
	for k := range clients {
		workers.Go(func() {
			for i := k; loading.Err() == nil; i += clients {
				n.add(e.get(ctx, i)) // it is not given up when the load ends
			}
		})
	}
	changes, err := 0, error(nil)
	for began := time.Now(); err == nil && time.Since(began) < changeTime; changes++ {
		if err = change(); err == nil {
			err = wait(ctx, changePause)
		}
	}
	stop()
	workers.Wait()
	return n, changes, err
}
