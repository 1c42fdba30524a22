package base

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/metrics"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Counts are the metrics of a component other than the API server.
type Counts struct {
	*metrics.Registry
	Queues  *metrics.Queues
	Clients *metrics.Clients
	leading *prometheus.GaugeVec
	checks  *metrics.Checks
}

// NewCounts returns the metrics of the component that ctx belongs to.
func NewCounts(ctx context.Context) *Counts {
	r := metrics.NewRegistry(nil)
	r.MustRegister(supervise.Metrics(ctx))
	return &Counts{
		Registry: r, Queues: metrics.NewQueues(r), Clients: metrics.NewClients(r), leading: metrics.NewLeading(r), checks: metrics.NewChecks(),
	}
}

// Of wraps a provider so that the requests of its clients are counted.
func (c *Counts) Of(p client.Provider) (client.Provider, error) {
	return p.WithTransport(c.Clients.Wrap)
}

// Leads records whether the component holds the lease of that name.
func (c *Counts) Leads(name string, leading bool) {
	value := 0.0
	if leading {
		value = 1
	}
	c.leading.WithLabelValues(name).Set(value)
}
