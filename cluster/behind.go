package cluster

import (
	"context"
	"net/netip"
	"reflect"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/nodejoin"
	"github.com/coracle-io/coracle/internal/supervise"
)

// ranges returns the ranges of the nodes' addresses, masked.
func (b *NodesBehind) ranges() []netip.Prefix {
	if b == nil {
		return nil
	}
	nodes := prefixes(b.CIDR)
	for i, p := range nodes {
		nodes[i] = p.Masked()
	}
	return nodes
}

const (
	behindPeriod  = time.Minute      // between two times that a node reads the network of its cluster
	behindTimeout = 10 * time.Second // for one
)

// followBehind follows which nodes this one, which has joined, reaches by the first one
// of their machine, until ctx ends. NodeOptions.Behind is what it knew when it joined.
func (n *Node) followBehind(ctx context.Context, client kubernetes.Interface) {
	read := func() {
		if err := n.readBehind(ctx, client); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("Reading the network of the cluster failed, will try again", "in", behindPeriod, "err", err)
		}
	}
	read()
	supervise.Every(ctx, behindPeriod, read)
}

// readBehind reads once which nodes this one reaches by another one. If they have
// changed, it asks for new routes.
func (n *Node) readBehind(ctx context.Context, client kubernetes.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, behindTimeout)
	defer cancel()
	network, err := nodejoin.ReadNetwork(ctx, client)
	if err != nil {
		return err
	}
	var now *NodesBehind
	if network.NodeCIDR != "" && network.Gateway != "" && network.Gateway != n.kubelet.Config.NodeName {
		now = &NodesBehind{CIDR: network.NodeCIDR, Node: network.Gateway}
	}
	if !reflect.DeepEqual(n.behind.Load(), now) {
		n.behind.Store(now)
		n.peers.signal()
	}
	return nil
}
