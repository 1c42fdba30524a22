package base

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/metrics"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Counts is what a component other than the API server counts.
type Counts struct {
	*metrics.Registry
	Queues  *metrics.Queues
	Clients *metrics.Clients
	leading *prometheus.GaugeVec
	checks  *metrics.Checks
}

// NewCounts makes what the component that ctx belongs to counts.
func NewCounts(ctx context.Context) *Counts {
	r := metrics.NewRegistry(nil)
	r.MustRegister(supervise.Counts(ctx))
	return &Counts{
		Registry: r, Queues: metrics.NewQueues(r), Clients: metrics.NewClients(r), leading: metrics.NewLeading(r), checks: metrics.NewChecks(),
	}
}

// Of returns the provider with the requests of its clients counted.
func (c *Counts) Of(p client.Provider) (client.Provider, error) { return p.Through(c.Clients.Wrap) }

// Leads notes whether the component holds the lease of that name.
func (c *Counts) Leads(name string, leading bool) {
	value := 0.0
	if leading {
		value = 1
	}
	c.leading.WithLabelValues(name).Set(value)
}
