package logging

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// streamEnd is the level at which the end of a stream is logged.
const streamEnd = 4

// Streams wraps the handler of exec, attach and port-forward. Such a stream
// ends when one side closes its connection while the other one is still being
// read. The libraries log that as an error; Streams logs it at level 4.
func Streams(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		log := klog.FromContext(r.Context())
		if inner := log.GetSink(); inner != nil {
			log = log.WithSink(connectionEndFilter{inner})
		}
		h.ServeHTTP(w, r.WithContext(klog.NewContext(r.Context(), log)))
	})
}

// connectionEndFilter is a logr.LogSink that demotes errors of closed
// connections.
type connectionEndFilter struct{ logr.LogSink }

// Error implements logr.LogSink.
func (s connectionEndFilter) Error(err error, msg string, values ...any) {
	inner := s.deeper(1).LogSink // this function is between the logger and the sink
	if !isConnectionEnd(err) {
		inner.Error(err, msg, values...)
		return
	}
	if s.Enabled(streamEnd) {
		inner.Info(streamEnd, msg, append(values[:len(values):len(values)], "err", err)...)
	}
}

// WithCallDepth implements logr.CallDepthLogSink.
func (s connectionEndFilter) WithCallDepth(depth int) logr.LogSink { return s.deeper(depth) }

func (s connectionEndFilter) deeper(depth int) connectionEndFilter {
	if inner, ok := s.LogSink.(logr.CallDepthLogSink); ok {
		return connectionEndFilter{inner.WithCallDepth(depth)}
	}
	return s
}

// WithValues implements logr.LogSink.
func (s connectionEndFilter) WithValues(values ...any) logr.LogSink {
	return connectionEndFilter{s.LogSink.WithValues(values...)}
}

// WithName implements logr.LogSink.
func (s connectionEndFilter) WithName(name string) logr.LogSink {
	return connectionEndFilter{s.LogSink.WithName(name)}
}

// isConnectionEnd reports whether an error says that a connection is closed.
func isConnectionEnd(err error) bool {
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed, syscall.EPIPE, syscall.ECONNRESET, context.Canceled} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}
