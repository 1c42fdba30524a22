package component

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/ingress"
	"github.com/coracle-io/coracle/internal/ingress/proxy"
)

// Ingress serves the Ingresses of a cluster on one node.
type Ingress struct {
	// NodeName is that of the node, and Addresses are those by which other machines reach
	// it.
	NodeName  string
	Addresses []string
	// HTTPPort and HTTPSPort are the ports to serve on. They are open while there is an
	// Ingress to serve.
	HTTPPort, HTTPSPort int
	// Metrics are those of all instances.
	Metrics *proxy.Metrics
}

// NewIngress returns one without a node or ports.
func NewIngress() *Ingress {
	return &Ingress{Metrics: proxy.NewMetrics()}
}

// RunWith serves with a client of the given provider until ctx ends.
func (i *Ingress) RunWith(ctx context.Context, provider client.Provider) error {
	own, err := provider.As(ingress.User, "system:authenticated")
	if err != nil {
		return err
	}
	p, err := proxy.New(proxy.Config{HTTPSPort: i.HTTPSPort, Metrics: i.Metrics})
	if err != nil {
		return err
	}
	events, shutdown := controller.NewRecorder(ctx, own.Kubernetes, v1.EventSource{Component: "ingress", Host: i.NodeName})
	defer shutdown()
	return ingress.New(ingress.Config{
		Client: own, Events: events, Proxy: p, Addresses: i.Addresses, HTTPPort: i.HTTPPort, HTTPSPort: i.HTTPSPort,
	}).Run(ctx)
}
