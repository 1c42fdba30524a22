package metrics

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Clients counts a component's requests to API servers.
type Clients struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// NewClients returns the counters of a component.
func NewClients(r *Registry) *Clients {
	return &Clients{
		total: r.counter("rest_client_requests_total", alpha+"Number of HTTP requests, partitioned by status code, method, and host.", "code", "method", "host"),
		duration: r.histogram("rest_client_request_duration_seconds", alpha+"Request latency in seconds. Broken down by verb, and host.",
			[]float64{0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0}, "verb", "host"),
	}
}

// Wrap returns a transport that counts requests.
func (c *Clients) Wrap(next http.RoundTripper) http.RoundTripper { return counting{c, next} }

type counting struct {
	clients *Clients
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t counting) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
	response, err := t.next.RoundTrip(r)
	code := "<error>"
	if err == nil {
		code = strconv.Itoa(response.StatusCode)
	}
	t.clients.total.WithLabelValues(code, r.Method, r.URL.Host).Inc()
	t.clients.duration.WithLabelValues(r.Method, r.URL.Host).Observe(time.Since(began).Seconds())
	return response, err
}

// WrappedRoundTripper returns the transport underneath, for client-go.
func (t counting) WrappedRoundTripper() http.RoundTripper { return t.next }

// NewLeading returns the gauge of the leases that a component holds, by name.
func NewLeading(r *Registry) *prometheus.GaugeVec {
	return r.gauge("leader_election_master_status", alpha+"Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the string used to identify the lease. Please make sure to group by name.", "name")
}
