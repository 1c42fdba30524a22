package component

import (
	"context"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/networkpolicy"
	"github.com/coracle-io/coracle/internal/networkpolicy/nftables"
	"github.com/coracle-io/coracle/internal/nft"
	"github.com/coracle-io/coracle/internal/proxy/configv1alpha1"
)

// NetworkPolicy enforces the network policies of the pods of one node.
type NetworkPolicy struct {
	*networkpolicy.Enforcer
	backend networkpolicy.Backend
}

// NetworkPolicyConfig configures the enforcer of a node.
type NetworkPolicyConfig struct {
	NodeName string
	Table    string // the nftables table of its own
	Bridge   string // what the pods share
	// ProxyMode is the mode of the node's proxy.
	ProxyMode string
	// IngressPorts are the ports at which the node serves Ingresses, if it does.
	IngressPorts []uint16
}

// NewNetworkPolicy returns the enforcer of a node.
func NewNetworkPolicy(c NetworkPolicyConfig) *NetworkPolicy {
	backend := nftables.New(nftables.Config{
		Table: c.Table, Bridge: c.Bridge, IngressPorts: c.IngressPorts, IPv6: nft.KernelHasIPv6(), IPVS: c.ProxyMode == configv1alpha1.ModeIPVS,
	})
	return &NetworkPolicy{Enforcer: networkpolicy.New(networkpolicy.Config{NodeName: c.NodeName, Backend: backend}), backend: backend}
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
