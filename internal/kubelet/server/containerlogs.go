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
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/httpserver"
	"github.com/coracle-io/coracle/internal/podquery"
)

// flusher flushes after each write.
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
	if err := podquery.ValidateLogOptions(options, true).ToAggregate(); err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	first := &firstWrite{w: httpserver.LimitUnread(w, s.config.Configuration.StreamingConnectionIdleTimeout.Duration)}
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

// firstWrite sends the header before the first write, so that an error before
// that can still set the status code.
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

// logOptions parses the query of a request for logs. Old clients call tailLines tail.
func logOptions(q url.Values) (*v1.PodLogOptions, error) {
	o := &v1.PodLogOptions{}
	if tail := q.Get("tail"); tail != "" {
		q.Set("tailLines", tail)
	}
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
	integer := func(name string, field **int64) error {
		text := q.Get(name)
		if text == "" || name == "tailLines" && text == "all" {
			return nil
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("query parameter %s must be a number, not %q", name, text)
		}
		*field = &n
		return nil
	}
	if err := errors.Join(
		boolean("follow", &o.Follow), boolean("previous", &o.Previous), boolean("timestamps", &o.Timestamps),
		integer("tailLines", &o.TailLines), integer("limitBytes", &o.LimitBytes), integer("sinceSeconds", &o.SinceSeconds),
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
