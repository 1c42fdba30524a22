package apiserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/server/filters"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/httpserver"
)

// Leave makes /readyz fail, so that load balancers choose another server. The
// server continues to serve requests.
func (s *Server) Leave() { s.leaving.Store(true) }

// filtered returns the handler for requests from the network. It adds only the
// filters that are configured.
func (s *Server) filtered() http.Handler {
	handler := s.Handler()
	if s.http.GoawayChance > 0 {
		handler = filters.WithProbabilisticGoaway(handler, s.http.GoawayChance)
	}
	handler = filters.WithCORS(handler, s.http.AllowedOrigins, nil, nil, nil, "true")
	return filters.WithHSTS(handler, s.http.StrictTransportSecurity)
}

// answerTime is how long a client may read the answer after the request's
// deadline.
const answerTime = 5 * time.Second

// endOnShutdown cancels a long-running request, and reads of its body, when the
// server shuts down. Call release at the end of the request.
func (q *request) endOnShutdown() (release func()) {
	ctx, cancel := context.WithCancel(q.call.Context)
	unhook := context.AfterFunc(*q.server.stop.Load(), cancel)
	keepBody := func() {}
	if hasBody(q.http) {
		keepBody = cutBody(ctx, q.response.wire)
	}
	q.call.Context = ctx
	return func() {
		unhook()
		keepBody()
		cancel()
	}
}

// Run serves HTTPS (HTTP/1.1 and HTTP/2) on a listener until ctx ends, and then
// waits up to LimitConfig.ShutdownGrace for requests in flight. It cancels watches, streams,
// proxied requests and unfinished bodies at once. tlsConfig has the certificates.
// Without a listener, Run only waits until ctx ends, for clients of Handler.
func (s *Server) Run(ctx context.Context, listener net.Listener, tlsConfig *tls.Config) error {
	s.stop.Store(&ctx)
	if listener == nil {
		<-ctx.Done()
		return nil
	}
	tlsConfig = tlsConfig.Clone()
	if tlsConfig.MinVersion == 0 {
		tlsConfig.MinVersion = tls.VersionTLS12
	}
	if tlsConfig.ClientAuth == tls.NoClientCert {
		tlsConfig.ClientAuth = tls.RequestClientCert
	}
	log := klog.FromContext(ctx)
	server := httpserver.New(ctx, s.filtered(), tlsConfig)
	// A request's own deadline comes first, so that the client gets an answer.
	server.ReadTimeout = s.limits.RequestTimeout + answerTime
	server.WriteTimeout = server.ReadTimeout
	server.HTTP2.MaxConcurrentStreams = s.http.MaxStreamsPerConnection
	server.HTTP2.MaxReadFrameSize = 64 << 10
	// Room for large bodies without waiting for the client's window.
	server.HTTP2.MaxReceiveBufferPerStream = 256 << 10
	server.HTTP2.MaxReceiveBufferPerConnection = 256 << 10 * 25
	done := make(chan error, 1)
	go func() { done <- server.ServeTLS(httpserver.NewMainListener(listener), "", "") }()
	select {
	case err := <-done:
		return fmt.Errorf("serve %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	log.V(1).Info("Shutting down", "address", listener.Addr().String())
	shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limits.ShutdownGrace)
	defer cancel()
	err := server.Shutdown(shutdown)
	if err != nil {
		err = server.Close()
	}
	if serveErr := <-done; !errors.Is(serveErr, http.ErrServerClosed) {
		return serveErr
	}
	return err
}
