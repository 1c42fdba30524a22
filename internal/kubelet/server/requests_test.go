package server

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// Requests are counted by what they are for. Nobody can make more series of them.
func TestRequestsAreMeasured(t *testing.T) {
	for path, want := range map[string]string{
		"/attach": "attach", "/attach/default/web/main": "attach", "/exec/default/web/main": "exec", "/portForward/default/web": "portForward",
		"/run/default/web/main": "run", "/containerLogs/default/web/main": "containerLogs", "/checkpoint/default/web/main": "checkpoint",
		"/debug/pprof/heap": "debug", "/debug/flags/v": "debug", "/healthz": "healthz", "/healthz/syncloop": "healthz", "/configz": "configz",
		"/logs/": "logs", "/logs/a/b": "logs", "/pods": "pods", "/pods/": "pods", "/runningpods/": "runningpods", "/stats/summary": "stats",
		"/metrics": "metrics", "/metrics/cadvisor": "metrics/cadvisor", "/metrics/probes": "metrics/probes", "/metrics/resource": "metrics/resource",
		"/metrics/more": "other", "/": "other", "": "other", "/secret": "other", "/secret/exec": "other", "//exec": "other",
	} {
		if got := requestPath(path); got != want {
			t.Errorf("%q is counted as %q, want %q", path, got, want)
		}
	}
	m := NewRequests(prometheus.NewRegistry())
	var during float64
	handler := m.measure(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		during = testutil.ToFloat64(m.inFlight.WithLabelValues(http.MethodGet, "pods", "readwrite", "false"))
		w.WriteHeader(http.StatusTeapot)
	}))
	for _, request := range []struct{ method, path string }{{http.MethodGet, "/pods"}, {"BREW", "/exec/a/b/c"}, {"BOIL", "/exec/a/b/c"}} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(request.method, request.path, nil))
		if w.Code != http.StatusTeapot || request.method == http.MethodGet && during != 1 {
			t.Errorf("%s %s: %d, %v in flight", request.method, request.path, w.Code, during)
		}
	}
	for want, labels := range map[float64][]string{1: {http.MethodGet, "pods", "readwrite", "false"}, 2: {"other", "exec", "readwrite", "true"}} {
		if got, left := testutil.ToFloat64(m.total.WithLabelValues(labels...)), testutil.ToFloat64(m.inFlight.WithLabelValues(labels...)); got != want || left != 0 {
			t.Errorf("%q: %v requests, %v in flight, want %v", labels, got, left, want)
		}
	}
	if n := testutil.CollectAndCount(m.duration); n != 2 {
		t.Errorf("%d series of durations", n)
	}
}
