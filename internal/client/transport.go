package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"

	"k8s.io/apiserver/pkg/authentication/user"
)

// handlerTransport is an http.RoundTripper that calls a handler. A response
// that fits in memory is handed over whole; one that the handler flushes
// (a watch) streams.
type handlerTransport struct {
	handler  http.Handler
	withUser func(context.Context, user.Info) context.Context
	user     user.Info
}

// RoundTrip implements http.RoundTripper. The handler's context ends when the
// caller's does or when the caller closes the body, as over a connection.
func (t *handlerTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(request.Context())
	served := request.Clone(t.withUser(ctx, t.user))
	served.RequestURI = request.URL.RequestURI()
	served.RemoteAddr = "127.0.0.1:0"
	served.Proto, served.ProtoMajor, served.ProtoMinor = "HTTP/2.0", 2, 0
	if served.Host == "" {
		served.Host = request.URL.Host
	}
	if served.Body == nil {
		served.Body = http.NoBody
	}
	s := &stream{header: http.Header{}, started: make(chan struct{}), cancel: cancel}
	s.changed.L = &s.mu
	go s.serve(t.handler, served)
	select {
	case <-s.started:
	case <-ctx.Done():
		_ = s.Close()
		return nil, ctx.Err()
	}
	return s.response(request)
}

// streamBuffer is how far a streaming handler may be ahead of its reader.
const streamBuffer = 1 << 20

// stream is a response under way: the handler's http.ResponseWriter and the
// caller's body.
type stream struct {
	header  http.Header
	started chan struct{} // closed once status and header are fixed
	cancel  context.CancelFunc

	mu      sync.Mutex // guards the following
	changed sync.Cond
	status  int
	sent    http.Header // the header as it was when the response started
	flowing bool        // started is closed
	buffer  bytes.Buffer
	done    bool  // the handler has returned
	closed  bool  // the reader has gone
	err     error // the handler panicked
}

func (s *stream) serve(handler http.Handler, request *http.Request) {
	defer func() {
		var err error
		if r := recover(); r != nil {
			err = io.ErrUnexpectedEOF
			if r != http.ErrAbortHandler {
				err = fmt.Errorf("handler panicked: %v", r)
			}
		}
		s.finish(err)
	}()
	handler.ServeHTTP(s, request)
}

func (s *stream) finish(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.start()
	s.done, s.err = true, err
	s.changed.Broadcast()
}

// start fixes status and header and lets RoundTrip return. Callers hold mu.
func (s *stream) start() {
	if s.flowing {
		return
	}
	s.fix(http.StatusOK)
	s.flowing = true
	close(s.started)
}

// fix takes the status and the header as they are now. Callers hold mu.
func (s *stream) fix(status int) {
	if s.status == 0 {
		s.status = status
		s.sent = s.header.Clone()
	}
}

// response is called once started is closed.
func (s *stream) response(request *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		s.cancel()
		return nil, s.err
	}
	length := int64(-1)
	if s.done {
		length = int64(s.buffer.Len())
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", s.status, http.StatusText(s.status)), StatusCode: s.status,
		Proto: "HTTP/2.0", ProtoMajor: 2,
		Header: s.sent, Body: s, ContentLength: length, Request: request,
	}, nil
}

// Header implements http.ResponseWriter.
func (s *stream) Header() http.Header { return s.header }

// WriteHeader implements http.ResponseWriter.
func (s *stream) WriteHeader(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if status >= http.StatusOK {
		s.fix(status)
	}
}

// Write implements http.ResponseWriter. It blocks while a streaming response
// is too far ahead of its reader.
func (s *stream) Write(data []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fix(http.StatusOK)
	for s.flowing && s.buffer.Len() > streamBuffer && !s.closed {
		s.changed.Wait()
	}
	if s.closed {
		return 0, io.ErrClosedPipe
	}
	s.changed.Broadcast()
	return s.buffer.Write(data)
}

// Flush implements http.Flusher.
func (s *stream) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.start()
}

// Read implements io.Reader for the caller.
func (s *stream) Read(data []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.buffer.Len() == 0 && !s.done && !s.closed {
		s.changed.Wait()
	}
	switch {
	case s.closed:
		return 0, http.ErrBodyReadAfterClose
	case s.buffer.Len() > 0:
		n, _ := s.buffer.Read(data)
		s.changed.Broadcast()
		return n, nil
	case s.err != nil:
		return 0, s.err
	}
	return 0, io.EOF
}

// Close implements io.Closer for the caller.
func (s *stream) Close() error {
	s.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.changed.Broadcast()
	return nil
}
