package logging

import (
	"bytes"
	"context"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/klog/v2"
)

// The level of a configuration file does not lower the one of the command line.
func TestRaiseLevel(t *testing.T) {
	ctx := New(io.Discard, Levels{Default: 1}).Context(t.Context(), "kubelet")
	for _, test := range []struct{ level, want int }{{0, 1}, {1, 1}, {3, 3}, {2, 3}, {math.MaxUint32, math.MaxInt32}} {
		RaiseLevel(ctx, test.level)
		if log := klog.FromContext(ctx); !log.V(test.want).Enabled() || log.V(test.want+1).Enabled() {
			t.Errorf("after %d the level is not %d", test.level, test.want)
		}
	}
	RaiseLevel(t.Context(), 2) // no logger of this package
}

// The level of a component changes, also for the loggers that it has. Others keep theirs.
func TestLevelIsSet(t *testing.T) {
	var out bytes.Buffer
	l := New(&out, Levels{Default: 1})
	kubelet := l.Context(t.Context(), "kubelet")
	derived := klog.NewContext(kubelet, klog.FromContext(kubelet).WithName("volumes").WithValues("pod", "a/b"))
	other := l.Context(t.Context(), "scheduler")
	logged := func(ctx context.Context) string {
		out.Reset()
		for level := range 6 {
			klog.FromContext(ctx).V(level).Info("line")
		}
		return strings.Repeat("|", strings.Count(out.String(), "line"))
	}
	for _, test := range []struct {
		method, body string
		ctx          context.Context
		code         int
		answer       string
		kubelet      string // a bar for each of the levels 0 to 5 that it logs
	}{
		{http.MethodPut, "4", kubelet, http.StatusOK, "successfully set klog.logging.verbosity to 4\n", "|||||"},
		{http.MethodGet, "", kubelet, http.StatusNotAcceptable, "unsupported http method\n", "|||||"},
		{http.MethodPut, "-1", kubelet, http.StatusBadRequest, "strconv.ParseUint: parsing \"-1\": invalid syntax\n", "|||||"},
		{http.MethodPut, "", kubelet, http.StatusBadRequest, "strconv.ParseUint: parsing \"\": invalid syntax\n", "|||||"},
		{http.MethodPut, strings.Repeat("1", 99), kubelet, http.StatusBadRequest, "error reading request body: http: request body too large\n", "|||||"},
		{http.MethodPut, "2", context.Background(), http.StatusBadRequest, "the level of this component's log cannot be set\n", "|||||"},
		{http.MethodPut, "0", derived, http.StatusOK, "successfully set klog.logging.verbosity to 0\n", "|"},
	} {
		w := httptest.NewRecorder()
		LevelHandler().ServeHTTP(w, httptest.NewRequest(test.method, LevelPath, strings.NewReader(test.body)).WithContext(test.ctx))
		if w.Code != test.code || w.Body.String() != test.answer {
			t.Errorf("%s %.9s: %d %q, want %d %q", test.method, test.body, w.Code, w.Body, test.code, test.answer)
		}
		again := l.Of("n2").Context(t.Context(), "kubelet")
		for _, ctx := range []context.Context{kubelet, derived, again} {
			if got := logged(ctx); got != test.kubelet {
				t.Errorf("after %s %.9s the kubelet logs %s, want %s", test.method, test.body, got, test.kubelet)
			}
		}
		if got := logged(other); got != "||" {
			t.Errorf("after %s %.9s the scheduler logs %s", test.method, test.body, got)
		}
	}
}
