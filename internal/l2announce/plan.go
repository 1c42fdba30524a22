package l2announce

import (
	"cmp"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/coracle-io/coracle/internal/addresspool"
	"github.com/coracle-io/coracle/internal/nodestatus"
)

// balancer is what the announcement of a Service's addresses depends on.
type balancer struct {
	namespace string
	addresses []netip.Addr
	// local are the nodes with a ready endpoint, if the external traffic policy admits
	// only these; nil if all nodes serve the Service.
	local map[string]bool
}

// ranks returns the addresses that a node may announce, and its place in the order of
// nodes of each one. Only addresses of pools that are for the Service are announced.
// All nodes compute the same order, which differs from address to address and changes
// for few addresses when a node comes or goes (rendezvous hashing). If there are too many
// addresses, all nodes leave out the same ones.
func ranks(own string, nodes []string, pools addresspool.Pools, services []balancer) map[netip.Addr]int {
	byAddress := map[netip.Addr][]balancer{}
	for _, s := range services {
		for _, a := range s.addresses {
			if pool := pools.Of(a); pool != nil && pool.Admits(s.namespace) {
				byAddress[a] = append(byAddress[a], s)
			}
		}
	}
	all := slices.SortedFunc(maps.Keys(byAddress), netip.Addr.Compare)
	out := map[netip.Addr]int{}
	for _, a := range all[:min(len(all), addresspool.MostAddresses)] {
		serves := func(node string) bool {
			return !slices.ContainsFunc(byAddress[a], func(s balancer) bool { return s.local != nil && !s.local[node] })
		}
		if !slices.Contains(nodes, own) || !serves(own) {
			continue
		}
		rank, ofOwn := 0, weight(a, own)
		for _, node := range nodes {
			if serves(node) && cmp.Or(cmp.Compare(weight(a, node), ofOwn), cmp.Compare(node, own)) < 0 {
				rank++
			}
		}
		out[a] = rank
	}
	return out
}

// weight returns the place of a node in the order of an address. The last bits of the
// hash are mixed into all: addresses and names often differ in the last byte alone.
func weight(a netip.Addr, node string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(append(a.AsSlice(), node...)) // a hash takes everything
	sum := h.Sum64()
	sum = (sum ^ sum>>33) * 0xff51afd7ed558ccd
	return sum ^ sum>>33
}

// isCandidate reports whether a node may announce addresses, apart from whether it is
// ready.
func isCandidate(n *v1.Node) bool {
	_, excluded := n.Labels[v1.LabelNodeExcludeBalancers]
	return !excluded && n.DeletionTimestamp == nil
}

// candidates returns the nodes that may announce addresses, in order: those that are
// ready, or all while none is.
func candidates(ready map[string]bool) []string {
	var list []string
	some := slices.Contains(slices.Collect(maps.Values(ready)), true)
	for _, name := range slices.Sorted(maps.Keys(ready)) {
		if ready[name] || !some {
			list = append(list, name)
		}
	}
	return list
}

func isReady(n *v1.Node) bool { return nodestatus.Ready(n) == v1.ConditionTrue }

// addressesOf returns the addresses of a node.
func addressesOf(n *v1.Node) []netip.Addr {
	var list []netip.Addr
	for _, address := range n.Status.Addresses {
		if a, err := netip.ParseAddr(address.Address); err == nil {
			list = append(list, a.Unmap())
		}
	}
	return list
}

// readyNodes returns the nodes with a ready endpoint in a slice, each one once, in
// order.
func readyNodes(slice *discoveryv1.EndpointSlice) []string {
	names := map[string]bool{}
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		if e.NodeName != nil && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
			names[*e.NodeName] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
