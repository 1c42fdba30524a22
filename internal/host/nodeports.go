package host

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/coracle-io/coracle/cluster"
)

// upstreamNodePorts is upstream's default range.
const upstreamNodePorts = "30000-32767"

// nodePortsOf returns the range of NodePorts of a cluster with a node in a
// slot. Slot 0 has upstream's range; each further slot has 500 ports below it,
// because all clusters open their NodePorts on this machine.
func nodePortsOf(slot int) string {
	const size = 500
	if slot == 0 {
		return upstreamNodePorts
	}
	first := 30000 - size*slot
	return fmt.Sprintf("%d-%d", first, first+size-1)
}

// nodePortRange returns the range of a cluster's NodePorts: the API server's
// argument, or else the option.
func nodePortRange(o cluster.Options) string {
	for _, a := range slices.Backward(o.APIServerArgs) {
		if argumentName(a) == "service-node-port-range" {
			return argumentValues([]string{a})
		}
	}
	return o.NodePorts
}

// CheckRanges returns an error if the address ranges of s overlap with those of
// another cluster with a node on this machine: the machine has one route for
// each.
func CheckRanges(s Settings, all []Record) error {
	if s.Nodes == 0 {
		return nil
	}
	for _, other := range all {
		if other.Name == s.Options.Name || other.Nodes == 0 {
			continue
		}
		for _, r := range []struct{ flag, own string }{
			{"service-cidr", s.Options.ServiceCIDR}, {"cluster-cidr", s.Options.ClusterCIDR}, {"node-cidr", nodeCIDR(s.Several(), nodeOf(s.Options))},
		} {
			for _, theirs := range []string{other.ServiceCIDR, other.ClusterCIDR, nodeCIDR(other.Nodes > 1 || other.Node.Count > 1, other.Node)} {
				if overlap(r.own, theirs) {
					return fmt.Errorf("--%s=%s overlaps with %s of cluster %s on this machine: choose another range", r.flag, r.own, theirs, other.Name)
				}
			}
		}
	}
	return nil
}

// nodeCIDR returns the ranges of the addresses of further nodes: of this machine, and
// of another one of its cluster. It is "" without any.
func nodeCIDR(several bool, o cluster.NodeOptions) string {
	var ranges []string
	if several {
		ranges = append(ranges, o.CIDR)
	}
	if o.Behind != nil {
		ranges = append(ranges, o.Behind.CIDR)
	}
	return strings.Join(ranges, ",")
}

// overlap reports whether two lists of address ranges share an address.
func overlap(a, b string) bool {
	for x := range strings.SplitSeq(a, ",") {
		for y := range strings.SplitSeq(b, ",") {
			p, errX := netip.ParsePrefix(x)
			q, errY := netip.ParsePrefix(y)
			if errX == nil && errY == nil && p.Overlaps(q) {
				return true
			}
		}
	}
	return false
}

// CheckNodePorts returns an error if the NodePorts of s overlap with those of
// another cluster with a node on this machine.
func CheckNodePorts(s Settings, all []Record) error {
	if s.Nodes == 0 {
		return nil // it opens no NodePorts here
	}
	own, err := utilnet.ParsePortRange(nodePortRange(s.Options))
	if err != nil {
		return nil // the API server reports malformed ranges
	}
	for _, other := range all {
		theirs, err := utilnet.ParsePortRange(other.NodePorts)
		if err != nil || other.Name == s.Options.Name || other.Nodes == 0 || other.NodePorts == "" {
			continue
		}
		if own.Base < theirs.Base+theirs.Size && theirs.Base < own.Base+own.Size {
			return fmt.Errorf("cluster %s has NodePorts %s on this machine, which overlap with %s: choose others, such as --apiserver-arg=service-node-port-range=%s",
				other.Name, strings.TrimSpace(other.NodePorts), nodePortRange(s.Options), nodePortsOf(max(s.Slot, 1)))
		}
	}
	return nil
}
