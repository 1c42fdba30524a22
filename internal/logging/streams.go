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

// Streams is h for exec, attach and port-forward. Such a stream ends by one
// side closing its connection while the other is still being read, which the
// libraries that carry it log as an error; it becomes a line of level 4.
func Streams(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		log := klog.FromContext(r.Context())
		if inner := log.GetSink(); inner != nil {
			log = log.WithSink(endsAreNoErrors{inner})
		}
		h.ServeHTTP(w, r.WithContext(klog.NewContext(r.Context(), log)))
	})
}

// endsAreNoErrors demotes the errors of connections that are over.
type endsAreNoErrors struct{ logr.LogSink }

// Error implements logr.LogSink.
func (s endsAreNoErrors) Error(err error, msg string, values ...any) {
	if !isEnd(err) {
		s.LogSink.Error(err, msg, values...)
		return
	}
	if s.Enabled(streamEnd) {
		s.Info(streamEnd, msg, append(values[:len(values):len(values)], "err", err)...)
	}
}

// WithValues implements logr.LogSink.
func (s endsAreNoErrors) WithValues(values ...any) logr.LogSink {
	return endsAreNoErrors{s.LogSink.WithValues(values...)}
}

// WithName implements logr.LogSink.
func (s endsAreNoErrors) WithName(name string) logr.LogSink {
	return endsAreNoErrors{s.LogSink.WithName(name)}
}

// isEnd says whether an error is that of a connection that somebody closed.
func isEnd(err error) bool {
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed, syscall.EPIPE, syscall.ECONNRESET, context.Canceled} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}
