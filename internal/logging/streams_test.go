package logging

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	"k8s.io/klog/v2"
)

func TestEndsOfStreamsAreNoErrors(t *testing.T) {
	ended := []error{
		&net.OpError{Op: "read", Net: "tcp", Err: net.ErrClosed},
		fmt.Errorf("readfrom: %w", &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}),
	}
	for level, want := range map[int]string{1: "E broken", 4: "I ended I ended E broken"} {
		var out bytes.Buffer
		log := New(&out, Levels{Default: level})
		handler := Streams(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			log := klog.FromContext(r.Context()).WithValues("pod", "web").WithName("stream")
			for _, err := range ended {
				log.Error(err, "ended")
			}
			log.Error(errors.New("no memory"), "broken")
		}))
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		handler.ServeHTTP(httptest.NewRecorder(), r.WithContext(log.Context(r.Context(), "kubelet")))
		var got []string
		for line := range strings.Lines(out.String()) {
			fields := strings.Fields(line)
			got = append(got, fields[0][:1], fields[3])
		}
		if strings.Join(got, " ") != want {
			t.Errorf("level %d: %s, want %s", level, strings.Join(got, " "), want)
		}
	}
}

// Lines in JSON name who logs, not the filter.
func TestCallersInStreams(t *testing.T) {
	var out bytes.Buffer
	ctx := New(&out, Levels{Default: 4}).Context(t.Context(), "kubelet")
	SetFormat(ctx, JSON)
	handler := Streams(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		log := klog.FromContext(r.Context())
		log.Info("began")
		log.Error(net.ErrClosed, "ended")
		log.Error(errors.New("no memory"), "broken")
		helper(log)
	}))
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
	if got := strings.Count(out.String(), `"caller":"logging/streams_test.go:`); got != 4 {
		t.Errorf("%d of 4 lines name this file:\n%s", got, out.String())
	}
}
