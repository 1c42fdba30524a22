package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/coracle-io/coracle/internal/ingress/table"
)

// echo is a server that switches to a protocol and returns what it gets, unless the
// request has no upgrade.
func echo(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") == "" {
		_, _ = io.WriteString(w, "no upgrade")
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+r.Header.Get("Upgrade")+"\r\n\r\n")
	_, _ = io.Copy(conn, buffered)
}

func TestWebSocket(t *testing.T) {
	p := newProxy(t, tableOf(t, routeTo(backend(t, echo))))
	at := serve(t, p, false)
	conn, from := raw(t, at, "GET /socket HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	response, err := http.ReadResponse(from, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%s", response.Status)
	}
	p.Set(new(table.Builder).Table()) // a new table does not end it
	for range 3 {
		if _, err := io.WriteString(conn, "hello\n"); err != nil {
			t.Fatal(err)
		}
		if line, err := from.ReadString('\n'); err != nil || line != "hello\n" {
			t.Fatalf("%q, %v", line, err)
		}
	}
	_ = conn.Close()
}

// A WebSocket ends with the server that it came by, and a server that ends leaves nothing
// behind.
func TestWebSocketEndsWithItsServer(t *testing.T) {
	p := newProxy(t, tableOf(t, routeTo(backend(t, echo))))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- p.Serve(ctx, l, false) }()
	_, from := raw(t, l.Addr().String(), "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	response, err := http.ReadResponse(from, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	cancel()
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if _, err := from.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the WebSocket goes on: %v", err)
	}
}

// A backend that switched to HTTP/2 would take requests that the proxy never sees.
func TestOtherUpgradesAreNotPassedOn(t *testing.T) {
	at := serve(t, newProxy(t, tableOf(t, routeTo(backend(t, echo)))), false)
	for _, upgrade := range []string{"h2c", "websocket, h2c", "SPDY/3.1", "TLS/1.0"} {
		_, from := raw(t, at, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: "+upgrade+"\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n")
		if code, body := answer(t, from); code != http.StatusOK || body != "no upgrade" {
			t.Errorf("%s: %d %q", upgrade, code, body)
		}
	}
}

// h2cBackend starts a server that speaks HTTP/2 without TLS, as gRPC does.
func h2cBackend(t *testing.T, h http.Handler) netip.AddrPort {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	return netip.MustParseAddrPort(server.Listener.Addr().String())
}

func TestTrailers(t *testing.T) {
	answers := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "Announced")
		_, _ = w.Write(body)
		w.Header().Set("Announced", "yes")
		w.Header().Set(http.TrailerPrefix+"Unannounced", "also")
	})
	for protocol, endpoint := range map[table.Protocol]netip.AddrPort{table.HTTP1: backend(t, answers), table.H2C: h2cBackend(t, answers)} {
		route := routeTo(endpoint)
		route.Targets[0].Backend.Protocol = protocol
		p := newProxy(t, tableOf(t, route))
		for scheme, secure := range map[string]bool{"http": false, "https": true} {
			request, err := http.NewRequest(http.MethodPost, scheme+"://"+serve(t, p, secure), io.MultiReader(strings.NewReader("body")))
			if err != nil {
				t.Fatal(err)
			}
			response, err := client(t).Do(request)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if err != nil || string(body) != "body" || response.Trailer.Get("Announced") != "yes" || response.Trailer.Get("Unannounced") != "also" {
				t.Errorf("%s from %s: %q, trailers %v, %v", protocol, scheme, body, response.Trailer, err)
			}
		}
	}
}

// Calls of gRPC pass, with their statuses and streams: from a client with TLS and from
// one without.
func TestGRPC(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	statuses := health.NewServer()
	server := grpc.NewServer()
	healthpb.RegisterHealthServer(server, statuses)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	route := routeTo(netip.MustParseAddrPort(l.Addr().String()))
	route.Targets[0].Backend.Protocol = table.H2C
	p := newProxy(t, tableOf(t, route))
	for what, secured := range map[string]credentials.TransportCredentials{
		"TLS": credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}), "no TLS": insecure.NewCredentials(),
	} {
		connection, err := grpc.NewClient("passthrough:///"+serve(t, p, what == "TLS"), grpc.WithTransportCredentials(secured))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = connection.Close() })
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		statuses.SetServingStatus("shop", healthpb.HealthCheckResponse_SERVING)
		calls := healthpb.NewHealthClient(connection)
		reply, err := calls.Check(ctx, &healthpb.HealthCheckRequest{Service: "shop"})
		if err != nil || reply.Status != healthpb.HealthCheckResponse_SERVING {
			t.Fatalf("%s: %v, %v", what, reply, err)
		}
		if _, err := calls.Check(ctx, &healthpb.HealthCheckRequest{Service: "unknown"}); err == nil || !strings.Contains(err.Error(), "unknown service") {
			t.Errorf("%s: an unknown service: %v", what, err)
		}
		stream, err := calls.Watch(ctx, &healthpb.HealthCheckRequest{Service: "shop"})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []healthpb.HealthCheckResponse_ServingStatus{healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_NOT_SERVING} {
			reply, err := stream.Recv() // each message comes before the stream ends
			if err != nil || reply.Status != want {
				t.Fatalf("%s: %v, %v, want %v", what, reply, err, want)
			}
			statuses.SetServingStatus("shop", healthpb.HealthCheckResponse_NOT_SERVING)
		}
	}
}

// A new certificate is that of new connections. The others go on, and lose no request.
func TestCertificateChangesWithoutEndingConnections(t *testing.T) {
	route := routeTo(backend(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	withCertificate := func(c *tls.Certificate) *table.Table {
		var b table.Builder
		addRule(t, &b, "shop.example", "/", route)
		b.AddCertificate("shop.example", c)
		return b.Table()
	}
	first, second := certificateFor(t, "shop.example"), certificateFor(t, "shop.example")
	p := newProxy(t, withCertificate(first))
	at := serve(t, p, true)
	newClient := func() *http.Client {
		c := client(t)
		c.Transport.(*http.Transport).TLSClientConfig.ServerName = "shop.example"
		return c
	}
	ask := func(c *http.Client) (certificate []byte, reused bool) {
		t.Helper()
		trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused }}
		request, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet, "https://"+at, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = "shop.example"
		response, err := c.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || string(body) != "hello" || response.ProtoMajor != 2 {
			t.Fatalf("%s %q, %v", response.Proto, body, err)
		}
		return response.TLS.PeerCertificates[0].Raw, reused
	}
	old := newClient()
	if got, _ := ask(old); string(got) != string(first.Certificate[0]) {
		t.Error("not the certificate of the table")
	}
	p.Set(withCertificate(second))
	if got, reused := ask(old); !reused || string(got) != string(first.Certificate[0]) {
		t.Errorf("the connection was not used again: %v", reused)
	}
	if got, _ := ask(newClient()); string(got) != string(second.Certificate[0]) {
		t.Error("a new connection has not the new certificate")
	}
	stranger := newClient()
	stranger.Transport.(*http.Transport).TLSClientConfig.ServerName = "other.example"
	if got, _ := ask(stranger); string(got) != string(p.certificate.Certificate[0]) {
		t.Error("a name without a certificate has not the default one")
	}
}

// Requests to a host do not come by a connection that began with the certificate of
// another one: browsers would send them below a wildcard.
func TestMisdirectedRequests(t *testing.T) {
	own := routeTo(backend(t, shownHeaders))
	shared := certificateFor(t, "shared.example")
	var b table.Builder
	for _, host := range []string{"wild.shop.example", "a.shop.example", "shared.example", "www.shared.example", "plain.example"} {
		addRule(t, &b, host, "/", own)
	}
	b.AddCertificate("*.shop.example", certificateFor(t, "*.shop.example"))
	b.AddCertificate("a.shop.example", certificateFor(t, "a.shop.example"))
	b.AddCertificate("shared.example", shared)
	b.AddCertificate("www.shared.example", shared)
	at := serve(t, newProxy(t, b.Table()), true)
	for _, test := range []struct {
		serverName, host string
		want             int
	}{
		{"wild.shop.example", "wild.shop.example", http.StatusOK},
		{"wild.shop.example", "a.shop.example", http.StatusMisdirectedRequest},
		{"a.shop.example", "wild.shop.example:8443", http.StatusMisdirectedRequest},
		{"a.shop.example", "A.shop.example:8443", http.StatusOK},
		{"shared.example", "www.shared.example", http.StatusOK},
		{"plain.example", "a.shop.example", http.StatusOK}, // with the certificate that no client trusts
		{"127.0.0.1", "a.shop.example", http.StatusOK},     // an address is no server name
	} {
		c := client(t)
		c.Transport.(*http.Transport).TLSClientConfig.ServerName = test.serverName
		request, err := http.NewRequest(http.MethodGet, "https://"+at, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = test.host
		response, err := c.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != test.want {
			t.Errorf("%s by a connection to %s: %d, want %d", test.host, test.serverName, response.StatusCode, test.want)
		}
	}
}
