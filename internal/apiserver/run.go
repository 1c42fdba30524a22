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

// Leave makes /readyz fail from now on, so that load balancers look for
// another server. Requests are served as ever.
func (s *Server) Leave() { s.leaving.Store(true) }

// filtered is the handler for requests from outside. Filters that are not
// asked for cost nothing.
func (s *Server) filtered() http.Handler {
	handler := s.Handler()
	if s.GoawayChance > 0 {
		handler = filters.WithProbabilisticGoaway(handler, s.GoawayChance)
	}
	handler = filters.WithCORS(handler, s.AllowedOrigins, nil, nil, nil, "true")
	return filters.WithHSTS(handler, s.StrictTransportSecurity)
}

// answerTime is how long a client has after a request's deadline to read the
// answer.
const answerTime = 5 * time.Second

// shutdownGrace is how long requests under way may take to finish. It leaves
// time for what ends after them: a supervisor gives the control plane six seconds.
const shutdownGrace = 4 * time.Second

// endOnShutdown ends a request that takes as long as others like, and the
// reading of its body, when the server shuts down. The function that it returns
// is for the end of the request.
func (q *request) endOnShutdown() (release func()) {
	ctx, cancel := context.WithCancel(q.Context)
	unhook := context.AfterFunc(*q.server.stop.Load(), cancel)
	keepBody := func() {}
	if sendsBody(q.http) {
		keepBody = cutBody(ctx, q.wire)
	}
	q.Context = ctx
	return func() {
		unhook()
		keepBody()
		cancel()
	}
}

// Run serves HTTPS (HTTP/1.1 and HTTP/2) on a listener until ctx ends, and
// then waits for the requests under way. Those that take as long as others like
// end at once: watches, streams, what other servers answer, and bodies that are
// still being received. tlsConfig gives the certificates. Without a listener,
// only Handler is asked until ctx ends.
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
	server.ReadTimeout = s.RequestTimeout + answerTime
	server.WriteTimeout = server.ReadTimeout
	server.HTTP2.MaxConcurrentStreams = s.MaxStreamsPerConnection
	server.HTTP2.MaxReadFrameSize = 64 << 10
	// Room for large bodies without waiting for the client's window.
	server.HTTP2.MaxReceiveBufferPerStream = 256 << 10
	server.HTTP2.MaxReceiveBufferPerConnection = 256 << 10 * 25
	server.BaseContext = func(net.Listener) context.Context { return context.WithoutCancel(ctx) }
	done := make(chan error, 1)
	go func() { done <- server.ServeTLS(httpserver.NewMainDoor(listener), "", "") }()
	select {
	case err := <-done:
		return fmt.Errorf("serve %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	log.V(1).Info("Shutting down", "address", listener.Addr().String())
	shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
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
