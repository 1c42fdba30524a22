package proxy

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/coracle-io/coracle/internal/ingress/table"
)

// A namespace has a bounded number of series, whatever methods its clients and statuses its
// backends make up. The series of an Ingress make room when it is gone.
func TestSeriesAreBounded(t *testing.T) {
	m := NewMetrics()
	record := func(namespace, name, method string, status int) {
		m.record(method, &exchange{route: &table.Route{Namespace: namespace, Name: name}, status: status}, time.Second)
	}
	const names = 1000
	methods := []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodHead}
	statuses := []int{200, 201, 204, 301, 302, 304, 400, 401, 403, 404}
	for n := range names {
		for _, method := range methods {
			for _, status := range statuses {
				record("greedy", strconv.Itoa(n), method, status)
			}
		}
	}
	record("fair", "one", http.MethodGet, http.StatusOK)
	// Each Ingress of the second half has its requests in one.
	if n, want := testutil.CollectAndCount(m.requests), maxSeriesOfNamespace+names-maxSeriesOfNamespace/len(methods)/len(statuses)+1; n != want {
		t.Errorf("%d series, want %d", n, want)
	}
	for _, test := range []struct {
		namespace, name, method, code string
		want                          float64
	}{
		{"greedy", "0", "GET", "200", 1},
		{"greedy", strconv.Itoa(names - 1), otherName, otherName, float64(len(methods) * len(statuses))},
		{"fair", "one", "GET", "200", 1},
	} {
		if got := testutil.ToFloat64(m.requests.WithLabelValues(test.namespace, test.name, test.method, test.code)); got != test.want {
			t.Errorf("%s/%s %s %s: %v requests, want %v", test.namespace, test.name, test.method, test.code, got, test.want)
		}
	}
	before := testutil.CollectAndCount(m.requests)
	m.forget("greedy", "0")
	m.forget("greedy", strconv.Itoa(names-1))
	if n, want := testutil.CollectAndCount(m.requests), before-len(methods)*len(statuses)-1; n != want {
		t.Errorf("%d series without two Ingresses, want %d", n, want)
	}
	record("greedy", "new", http.MethodGet, http.StatusOK)
	if got := testutil.ToFloat64(m.requests.WithLabelValues("greedy", "new", "GET", "200")); got != 1 {
		t.Errorf("%v requests of a new Ingress, want 1", got)
	}
	for n := range names {
		m.forget("greedy", strconv.Itoa(n))
	}
	m.forget("greedy", "new")
	m.forget("fair", "one")
	if n := testutil.CollectAndCount(m); n != 2 || len(m.series) > 0 || len(m.counts) > 0 { // of retries and open connections
		t.Errorf("%d series are left, of %v and %v", n, m.series, m.counts)
	}
}
