package component

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
)

// health serves /healthz, /livez, /readyz and /metrics of a component that
// has no server of its own, over HTTPS with a certificate that it signs itself.
type health struct {
	component string
	address   string
	port      int // 0 is none
}

func (h health) run(ctx context.Context) error {
	if h.port == 0 {
		<-ctx.Done()
		return nil
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	}
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	listener, err := net.Listen("tcp", net.JoinHostPort(h.address, strconv.Itoa(h.port)))
	if err != nil {
		return fmt.Errorf("port %d of the %s is taken (--secure-port chooses another): %w", h.port, h.component, err)
	}
	cert, key, err := certutil.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, ReadHeaderTimeout: 10 * time.Second, ErrorLog: klog.NewStandardLogger("WARNING")}
	done := make(chan error, 1)
	go func() { done <- server.ServeTLS(listener, "", "") }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	err = server.Close()
	if served := <-done; !errors.Is(served, http.ErrServerClosed) {
		return served
	}
	return err
}

// together runs functions until one fails or ctx ends, and waits for all.
func together(ctx context.Context, run ...func(context.Context) error) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, r := range run {
		g.Go(func() error { return r(ctx) })
	}
	return g.Wait()
}
