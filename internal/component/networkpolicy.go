package component

import (
	"context"
	"os"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/networkpolicy"
	"github.com/coracle-io/coracle/internal/networkpolicy/nftables"
)

// NetworkPolicy enforces the network policies of the pods of one node.
type NetworkPolicy struct {
	*networkpolicy.Enforcer
	backend networkpolicy.Backend
}

// NewNetworkPolicy returns the enforcer of a node, whose pods share a bridge. table
// is the nftables table of its own. ingressPorts are the ports at which the node serves
// Ingresses, if it does.
func NewNetworkPolicy(nodeName, table, bridge string, ingressPorts []uint16) *NetworkPolicy {
	_, err := os.Stat("/proc/net/if_inet6")
	backend := nftables.New(nftables.Config{Table: table, Bridge: bridge, IngressPorts: ingressPorts, IPv6: err == nil})
	return &NetworkPolicy{Enforcer: networkpolicy.New(networkpolicy.Config{NodeName: nodeName, Backend: backend}), backend: backend}
}

// RunWith enforces with a client of the given provider until ctx ends. The rules
// stay, so that pods stay isolated while an enforcer restarts.
func (n *NetworkPolicy) RunWith(ctx context.Context, provider client.Provider) error {
	own, err := provider.As(networkpolicy.User, "system:authenticated")
	if err != nil {
		return err
	}
	return n.Run(ctx, own)
}

// RemoveRules removes the rules of an enforcer that has ended.
func (n *NetworkPolicy) RemoveRules() error { return n.backend.Remove() }
