package cluster

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/l2announce"
)

// announceAddresses makes the node answer for the addresses of Services that are from
// pools, until ctx ends. It reads as the proxy, which must know the same objects.
func (n *Node) announceAddresses(ctx context.Context, provider client.Provider) error {
	own, err := provider.As("system:kube-proxy", "system:authenticated")
	if err != nil {
		return err
	}
	name := n.kubelet.Config.NodeName
	events, shutdown := controller.NewRecorder(ctx, own.Kubernetes, v1.EventSource{Component: announcer, Host: name})
	defer shutdown()
	return n.withAddresses(ctx, func(ctx context.Context) error {
		return l2announce.New(l2announce.Config{
			Client: own, NodeName: name, Own: parseAddresses(n.reachable()), Events: events,
			Taken: slices.Concat(prefixes(n.settings.ClusterCIDR), prefixes(n.settings.ServiceCIDR)),
		}).Run(ctx)
	})
}

// announcer is the component's name in logs and events.
const announcer = "announcer"
