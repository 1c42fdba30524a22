package proxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/coracle-io/coracle/internal/ingress/table"
)

// BenchmarkRequest passes requests on over TCP, with a table of a thousand hosts: from
// clients that keep their connections to one backend.
func BenchmarkRequest(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	defer server.Close()
	var builder table.Builder
	root, err := table.ParsePath("/")
	if err != nil {
		b.Fatal(err)
	}
	for n := range 1000 {
		builder.Add(fmt.Sprintf("host-%d.example", n), table.Prefix, root, routeTo(netip.MustParseAddrPort(server.Listener.Addr().String())))
	}
	p, err := New(Config{HTTPSPort: httpsPort, Metrics: NewMetrics()})
	if err != nil {
		b.Fatal(err)
	}
	p.Set(builder.Table())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	front := &http.Server{Handler: p}
	go func() { _ = front.Serve(l) }()
	defer func() { _ = front.Close() }()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		transport := &http.Transport{}
		defer transport.CloseIdleConnections()
		for pb.Next() {
			request, err := http.NewRequest(http.MethodGet, "http://"+l.Addr().String(), nil)
			if err != nil {
				b.Error(err)
				return
			}
			request.Host = "host-500.example"
			response, err := transport.RoundTrip(request)
			if err != nil {
				b.Error(err)
				return
			}
			_, err = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
			if err != nil || response.StatusCode != http.StatusOK {
				b.Errorf("%s, %v", response.Status, err)
				return
			}
		}
	})
}
