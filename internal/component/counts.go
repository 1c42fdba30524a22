package component

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/metrics"
)

// counts is what a component other than the API server counts.
type counts struct {
	*metrics.Registry
	queues  *metrics.Queues
	clients *metrics.Clients
	leading *prometheus.GaugeVec
	checks  *metrics.Checks
}

func newCounts() *counts {
	r := metrics.NewRegistry(nil)
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
