package certificate

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/coracle-io/coracle/internal/nativehistogram"
)

// clientCount counts the requests for a client certificate that failed.
func clientCount() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kubelet_certificate_manager_client_expiration_renew_errors", Help: "[ALPHA] Counter of certificate renewal errors.",
	})
}

// servingCounts counts the requests for a serving certificate that failed, and
// how old certificates were when they were replaced.
func servingCounts(r prometheus.Registerer) (prometheus.Counter, prometheus.Histogram) {
	const minute, hour, day = 60, 60 * 60, 24 * 60 * 60
	failed := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kubelet_server_expiration_renew_errors", Help: "[ALPHA] Counter of certificate renewal errors.",
	})
	age := nativehistogram.New(prometheus.HistogramOpts{
		Name: "kubelet_certificate_manager_server_rotation_seconds", Help: "[ALPHA] Histogram of the number of seconds the previous certificate lived before being rotated.",
		Buckets: []float64{minute, hour, 4 * hour, day, 7 * day, 30 * day, 90 * day, 180 * day, 365 * day, 4 * 365 * day},
	})
	r.MustRegister(failed, age)
	return failed, age
}

// timeLeft shows how long the certificate of a client or server is valid.
func timeLeft(which, what string, c *Renewed) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubelet_certificate_manager_" + which + "_ttl_seconds",
		Help: "[ALPHA] Gauge of the shortest TTL (time-to-live) of the Kubelet's " + what + " certificate. The value is in seconds until certificate expiry (negative if already expired). " +
			"If " + what + " certificate is invalid or unused, the value will be +INF.",
	}, c.left)
}

// ShowClient shows the state of a client certificate in r.
func ShowClient(r prometheus.Registerer, c *Client) {
	r.MustRegister(c.failed, timeLeft("client", "client", c.Renewed))
}
