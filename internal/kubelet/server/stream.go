package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/proxy"
	streamproxy "k8s.io/apiserver/pkg/util/proxy"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/coracle-io/coracle/internal/httpserver"
	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/logging"
)

// flusher passes each write on at once.
type flusher struct{ w http.ResponseWriter }

func (f flusher) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if flush, ok := f.w.(http.Flusher); ok {
		flush.Flush()
	}
	return n, err
}

func (s *Server) containerLogs(w http.ResponseWriter, r *http.Request) {
	pod := s.find(w, r)
	if pod == nil {
		return
	}
	options, err := logOptions(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	first := &firstWrite{w: httpserver.LimitUnread(w, s.config.StreamIdle)}
	var stdout, stderr io.Writer = first, first
	if options.Stream != nil {
		switch *options.Stream {
		case v1.LogStreamStdout:
			stderr = nil
		case v1.LogStreamStderr:
			stdout = nil
		}
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	err = s.readLogs(ctx, pod, r.PathValue("container"), options, stdout, stderr)
	switch {
	case err == nil:
		first.begin()
	case first.begun:
		klog.FromContext(ctx).V(2).Info("A log stream ended early", "pod", klog.KObj(pod), "err", err)
	case errors.Is(err, errNotFound):
		http.Error(w, err.Error(), http.StatusNotFound)
	default:
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

// firstWrite holds back the header until there is something to write, so that
// an error before it can still be answered with its code.
type firstWrite struct {
	w     http.ResponseWriter
	begun bool
}

func (f *firstWrite) begin() {
	if !f.begun {
		f.begun = true
		f.w.Header().Set("Content-Type", "text/plain")
		f.w.WriteHeader(http.StatusOK)
	}
}

func (f *firstWrite) Write(p []byte) (int, error) {
	f.begin()
	return flusher{f.w}.Write(p)
}

// logOptions reads the query of a request for logs.
func logOptions(q url.Values) (*v1.PodLogOptions, error) {
	o := &v1.PodLogOptions{}
	boolean := func(name string, field *bool) error {
		if !q.Has(name) {
			return nil
		}
		value, err := strconv.ParseBool(q.Get(name))
		if err != nil && q.Get(name) != "" {
			return fmt.Errorf("query parameter %s must be true or false, not %q", name, q.Get(name))
		}
		*field = value || q.Get(name) == ""
		return nil
	}
	integer := func(name string, least int64, field **int64) error {
		text := q.Get(name)
		if text == "" || name == "tailLines" && text == "all" {
			return nil
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < least {
			return fmt.Errorf("query parameter %s must be a number of at least %d, not %q", name, least, text)
		}
		*field = &n
		return nil
	}
	if err := errors.Join(
		boolean("follow", &o.Follow), boolean("previous", &o.Previous), boolean("timestamps", &o.Timestamps),
		integer("tailLines", 0, &o.TailLines), integer("limitBytes", 1, &o.LimitBytes), integer("sinceSeconds", 1, &o.SinceSeconds),
	); err != nil {
		return nil, err
	}
	if text := q.Get("sinceTime"); text != "" {
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return nil, fmt.Errorf("query parameter sinceTime: %w", err)
		}
		since := metav1.NewTime(t)
		o.SinceTime = &since
	}
	if text := q.Get("stream"); text != "" {
		o.Stream = &text
	}
	return o, nil
}

// streams reads which streams a request for exec or attach wants.
func streams(q url.Values) (stdin, stdout, stderr, tty bool) {
	set := func(names ...string) bool {
		for _, n := range names {
			if v := q.Get(n); v == "1" || v == "true" {
				return true
			}
		}
		return false
	}
	tty = set("tty")
	return set("input", "stdin"), set("output", "stdout"), set("error", "stderr") && !tty, tty
}

// target finds the running container that a request names, or answers it.
func (s *Server) target(w http.ResponseWriter, r *http.Request) (id string, ok bool) {
	pod := s.find(w, r)
	if pod == nil {
		return "", false
	}
	id, err := s.containerID(pod, r.PathValue("container"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return "", false
	}
	return id, true
}

func (s *Server) exec(w http.ResponseWriter, r *http.Request) {
	id, ok := s.target(w, r)
	if !ok {
		return
	}
	q := r.URL.Query()
	request := &runtimeapi.ExecRequest{ContainerId: id, Cmd: q["command"]}
	request.Stdin, request.Stdout, request.Stderr, request.Tty = streams(q)
	if !request.Stdin && !request.Stdout && !request.Stderr {
		http.Error(w, "you must specify at least 1 of stdin, stdout, stderr", http.StatusBadRequest)
		return
	}
	answer, err := s.config.Runtime.Exec(r.Context(), request)
	s.forward(w, r, answer.GetUrl(), err, streamproxy.Options{Stdin: request.Stdin, Stdout: request.Stdout, Stderr: request.Stderr, Tty: request.Tty})
}

func (s *Server) attach(w http.ResponseWriter, r *http.Request) {
	id, ok := s.target(w, r)
	if !ok {
		return
	}
	request := &runtimeapi.AttachRequest{ContainerId: id}
	request.Stdin, request.Stdout, request.Stderr, request.Tty = streams(r.URL.Query())
	if !request.Stdin && !request.Stdout && !request.Stderr {
		http.Error(w, "you must specify at least 1 of stdin, stdout, stderr", http.StatusBadRequest)
		return
	}
	answer, err := s.config.Runtime.Attach(r.Context(), request)
	s.forward(w, r, answer.GetUrl(), err, streamproxy.Options{Stdin: request.Stdin, Stdout: request.Stdout, Stderr: request.Stderr, Tty: request.Tty})
}

func (s *Server) portForward(w http.ResponseWriter, r *http.Request) {
	pod := s.find(w, r)
	if pod == nil {
		return
	}
	id, err := s.sandboxID(pod)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	request := &runtimeapi.PortForwardRequest{PodSandboxId: id}
	for _, text := range append(r.URL.Query()["port"], r.URL.Query()["ports"]...) {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil || port == 0 {
			http.Error(w, fmt.Sprintf("query parameter port must be from 1 to 65535, not %q", text), http.StatusBadRequest)
			return
		}
		request.Port = append(request.Port, int32(port))
	}
	answer, err := s.config.Runtime.PortForward(r.Context(), request)
	s.forward(w, r, answer.GetUrl(), err, streamproxy.Options{})
}

// forward joins the request's connection with the runtime's streaming server at
// the address that it gave,
// which speaks SPDY: newer WebSocket protocols are translated (KEP-4006).
func (s *Server) forward(w http.ResponseWriter, r *http.Request, address string, err error, o streamproxy.Options) {
	location := (*url.URL)(nil)
	if err == nil {
		location, err = url.Parse(address)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	var handler http.Handler = proxy.NewUpgradeAwareHandler(location, nil, false, true, responder{})
	switch {
	case wsstream.IsWebSocketRequestWithStreamCloseProtocol(r):
		handler = streamproxy.NewStreamTranslatorHandler(location, nil, 0, o)
	case wsstream.IsWebSocketRequestWithTunnelingProtocol(r):
		handler = streamproxy.NewTunnelingHandler(handler)
	}
	logging.Streams(handler).ServeHTTP(limitIdle(w, s.config.StreamIdle), r)
}

type responder struct{}

func (responder) Error(w http.ResponseWriter, r *http.Request, err error) {
	klog.FromContext(r.Context()).Error(err, "A stream to the container runtime failed", "path", r.URL.Path)
	http.Error(w, err.Error(), http.StatusInternalServerError)
}

func (s *Server) run(w http.ResponseWriter, r *http.Request) {
	id, ok := s.target(w, r)
	if !ok {
		return
	}
	command := r.URL.Query()["cmd"]
	if len(command) == 0 {
		http.Error(w, "query parameter cmd names the command to run", http.StatusBadRequest)
		return
	}
	output, err := cri.Exec(r.Context(), s.config.Runtime, id, command, 0)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(output)
}
