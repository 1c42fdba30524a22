// Package httpserver makes the HTTP servers of all components. They bound the
// time and the connections that a client may use:
//
//	connect ─ handshake, headers ─ body, response ──────────────── next request
//	   │        HeaderTimeout        RequestTimeout (Stream: none)   IdleTimeout
//	   └─ counts as one of a Listener's unknown connections until
//	      MarkAuthenticated, then as one of its user's
package httpserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"log"
	"net"
	"net/http"
	"time"

	"k8s.io/klog/v2"
)

const (
	// HeaderTimeout bounds a TLS handshake and the headers of a request.
	HeaderTimeout = 10 * time.Second
	// RequestTimeout bounds a request, from its headers to the end of its
	// response.
	RequestTimeout = time.Minute
	// IdleTimeout bounds the time between requests of a connection.
	IdleTimeout = 90 * time.Second
	// writeTimeout bounds the time in which an HTTP/2 client reads nothing
	// although data waits to be sent.
	writeTimeout = 30 * time.Second
	// maxHeaderBytes is upstream's bound.
	maxHeaderBytes = 1 << 20
	// maxStreams bounds the concurrent requests of an HTTP/2 connection.
	maxStreams = 100
)

// New returns a server that logs with ctx's logger. The contexts of requests have it,
// too, and do not end with ctx. With a TLS configuration, callers use ServeTLS, and it
// speaks HTTP/2 as well. The caller may change the server before it serves.
func New(ctx context.Context, handler http.Handler, config *tls.Config) *http.Server {
	return &http.Server{
		Handler:           handler,
		TLSConfig:         config,
		ReadHeaderTimeout: HeaderTimeout,
		ReadTimeout:       RequestTimeout,
		WriteTimeout:      RequestTimeout,
		IdleTimeout:       IdleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams, WriteByteTimeout: writeTimeout},
		ErrorLog:          log.New(errorLog{klog.FromContext(ctx)}, "", 0),
		BaseContext:       func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		ConnContext:       withConnection,
		ConnState:         followHeads,
	}
}

// handshakeVerbosity is the log level of failed handshakes. At a lower level,
// any client that breaks off a handshake would write a line.
const handshakeVerbosity = 4

// errorLog passes what a server logs to a klog logger.
type errorLog struct{ to klog.Logger }

// Write implements io.Writer.
func (l errorLog) Write(line []byte) (int, error) {
	message := string(bytes.TrimSpace(line))
	if bytes.HasPrefix(line, []byte("http: TLS handshake error")) {
		l.to.V(handshakeVerbosity).Info(message)
	} else {
		l.to.Info(message)
	}
	return len(line), nil
}

// Stream returns a handler whose requests have no time limit.
func Stream(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ClearDeadlines(w)
		h.ServeHTTP(w, r)
	})
}

// ClearDeadlines lifts the time limit of one request.
func ClearDeadlines(w http.ResponseWriter) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // fails if the writer has no deadlines
	_ = control.SetWriteDeadline(time.Time{})
}

// withConnection adds the connection to the context of its requests, where
// MarkAuthenticated finds it.
func withConnection(ctx context.Context, conn net.Conn) context.Context {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	if c, ok := conn.(*connection); ok {
		return context.WithValue(ctx, connectionKey{}, c)
	}
	return ctx
}
