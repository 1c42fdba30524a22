// Package httpserver makes the HTTP servers of all components, so that each of
// them bounds what a client may take:
//
//	connect ─ handshake, headers ─ body, answer ──────── next request
//	   │        HeaderTimeout        Request (Stream: none)   IdleTimeout
//	   └─ until its sender is known: one of a Door's unknown connections;
//	                    then one of its user's
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
	// Request bounds a request, from its headers to the end of its answer.
	Request = time.Minute
	// IdleTimeout bounds the time between requests of a connection.
	IdleTimeout = 90 * time.Second
	// writeTimeout is how long a connection may take no byte of what is
	// waiting to be sent to it.
	writeTimeout = 30 * time.Second
	// maxHeaderBytes is upstream's bound.
	maxHeaderBytes = 1 << 20
	// maxStreams is how many requests at a time an HTTP/2 connection carries.
	maxStreams = 100
)

// New makes a server, which logs with ctx's logger. With a TLS configuration it
// is served by ServeTLS, and speaks HTTP/2 too. The caller may change it before
// it serves.
func New(ctx context.Context, handler http.Handler, config *tls.Config) *http.Server {
	return &http.Server{
		Handler:           handler,
		TLSConfig:         config,
		ReadHeaderTimeout: HeaderTimeout,
		ReadTimeout:       Request,
		WriteTimeout:      Request,
		IdleTimeout:       IdleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams, WriteByteTimeout: writeTimeout},
		ErrorLog:          log.New(errorLog{klog.FromContext(ctx)}, "", 0),
		ConnContext:       introduce,
	}
}

// handshakeVerbosity is the level from which failed handshakes show: each
// stranger who breaks one off would write a line.
const handshakeVerbosity = 4

// errorLog takes what a server logs.
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

// Stream is a handler whose requests last as long as the client likes.
func Stream(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		Unhurried(w)
		h.ServeHTTP(w, r)
	})
}

// Unhurried lifts the bound of one request's time.
func Unhurried(w http.ResponseWriter) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // not every writer has deadlines to lift
	_ = control.SetWriteDeadline(time.Time{})
}

// introduce lets a request's context lead to its connection at the door.
func introduce(ctx context.Context, conn net.Conn) context.Context {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	if v, ok := conn.(*visitor); ok {
		return context.WithValue(ctx, visitorKey{}, v)
	}
	return ctx
}
