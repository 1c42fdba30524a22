package cluster

import (
	"context"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	behindPeriod  = 15 * time.Second // between two times that a node reads the network of its cluster
	behindTimeout = 10 * time.Second // for one
)

// followBehind follows which nodes this one reaches by the first one of their machine,
// until ctx ends. NodeOptions.Behind is what it knew when it joined. It does not ask while
// there is no other machine: then nodes may lack the right to.
func (n *Node) followBehind(ctx context.Context, client kubernetes.Interface) {
	read := func() {
		if !n.settings.joined() && !n.peers.elsewhere(n.isHere) {
			return
		}
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
	if network.NodeCIDR != "" && network.Gateway != "" && !n.isHere(network.Gateway) {
		now = &NodesBehind{CIDR: network.NodeCIDR, Node: network.Gateway}
	}
	if !reflect.DeepEqual(n.behind.Load(), now) {
		n.behind.Store(now)
		n.peers.signal()
	}
	return nil
}

// withGateway returns a network with what another server than that of the own node has
// published of its further nodes, as long as its first node is there: other machines reach
// those of one server alone.
func withGateway(ctx context.Context, client kubernetes.Interface, network nodejoin.Network, own string) (nodejoin.Network, error) {
	there, err := nodejoin.ReadNetwork(ctx, client)
	if err != nil || there.Gateway == "" || there.Gateway == own { // an error: nothing of use is there yet
		return network, nil
	}
	if _, err := client.CoreV1().Nodes().Get(ctx, there.Gateway, metav1.GetOptions{}); err != nil {
		if apierrors.IsNotFound(err) {
			err = nil
		}
		return network, err
	}
	if network.Gateway != "" {
		klog.FromContext(ctx).Info("Other machines do not reach the further nodes of this one, but those of another one", "node", there.Gateway)
	}
	network.NodeCIDR, network.Gateway = there.NodeCIDR, there.Gateway
	return network, nil
}

// isHere reports whether a node is one of this machine.
func (n *Node) isHere(name string) bool {
	return name == n.kubelet.Config.NodeName || slices.Contains(slices.Collect(maps.Values(n.settings.present())), name)
}
