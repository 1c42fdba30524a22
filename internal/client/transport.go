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

// handlerTransport is an http.RoundTripper that calls a handler. It returns a response
// when the handler has returned, or when the handler flushes, as watches do. In the latter
// case, it streams the body.
type handlerTransport struct {
	handler  http.Handler
	withUser func(context.Context, user.Info) context.Context
	user     user.Info
}

// RoundTrip implements http.RoundTripper. The handler's context is canceled when the
// request's context is done or the caller closes the body.
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

// streamBuffer is the maximum number of unread bytes of a streaming response.
const streamBuffer = 1 << 20

// stream is a response in progress. It is the handler's http.ResponseWriter and the
// caller's body.
type stream struct {
	header  http.Header
	started chan struct{} // closed once status and header are fixed
	cancel  context.CancelFunc

	mu        sync.Mutex // guards the following
	changed   sync.Cond
	status    int
	sent      http.Header // a copy of header when the status was set
	streaming bool        // started is closed
	buffer    bytes.Buffer
	done      bool  // the handler has returned
	closed    bool  // the caller has closed the body
	err       error // the handler has panicked
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

// start fixes the status and header, and makes RoundTrip return. Callers hold mu.
func (s *stream) start() {
	if s.streaming {
		return
	}
	s.setStatus(http.StatusOK)
	s.streaming = true
	close(s.started)
}

// setStatus fixes the status and header unless they are already fixed. Callers hold mu.
func (s *stream) setStatus(status int) {
	if s.status == 0 {
		s.status = status
		s.sent = s.header.Clone()
	}
}

// response returns the response. It must be called after started is closed.
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
		s.setStatus(status)
	}
}

// Write implements http.ResponseWriter. It blocks while a streaming response has more than
// streamBuffer unread bytes.
func (s *stream) Write(data []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setStatus(http.StatusOK)
	for s.streaming && s.buffer.Len() > streamBuffer && !s.closed {
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

// Read implements io.Reader for the body.
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

// Close implements io.Closer for the body.
func (s *stream) Close() error {
	s.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.changed.Broadcast()
	return nil
}
