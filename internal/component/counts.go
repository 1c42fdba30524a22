package component

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/metrics"
	"github.com/coracle-io/coracle/internal/supervise"
)

// counts is what a component other than the API server counts.
type counts struct {
	*metrics.Registry
	queues  *metrics.Queues
	clients *metrics.Clients
	leading *prometheus.GaugeVec
	checks  *metrics.Checks
}

// newCounts makes what the component that ctx belongs to counts.
func newCounts(ctx context.Context) *counts {
	r := metrics.NewRegistry(nil)
	r.MustRegister(supervise.Counts(ctx))
	return &counts{
		Registry: r, queues: metrics.NewQueues(r), clients: metrics.NewClients(r), leading: metrics.NewLeading(r), checks: metrics.NewChecks(),
	}
}

// of returns the provider with the requests of its clients counted.
func (c *counts) of(p client.Provider) (client.Provider, error) { return p.Through(c.clients.Wrap) }

// leads notes whether the component holds the lease of that name.
func (c *counts) leads(name string, leading bool) {
	value := 0.0
	if leading {
		value = 1
	}
	c.leading.WithLabelValues(name).Set(value)
}
