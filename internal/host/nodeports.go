package host

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// upstreamNodePorts is upstream's range of NodePorts.
const upstreamNodePorts = "30000-32767"

// nodePortsOf is the range of NodePorts of a cluster with a node in a slot.
// The first has upstream's; each further one has 500 ports of its own below
// it, for all of them open theirs on this machine.
func nodePortsOf(slot int) string {
	const size = 500
	if slot == 0 {
		return upstreamNodePorts
	}
	first := 30000 - size*slot
	return fmt.Sprintf("%d-%d", first, first+size-1)
}

// NodePortRange is the range of the cluster's NodePorts: the API server's
// argument, or else the one that was chosen.
func (s *Settings) NodePortRange() string {
	for _, a := range slices.Backward(s.APIServerArgs) {
		if argumentName(a) == "service-node-port-range" {
			return argumentValues([]string{a})
		}
	}
	return s.NodePorts
}

// CheckRanges reports another cluster with a node on this machine whose
// Services or pods have some of the same addresses: the machine has one route
// for each.
func CheckRanges(s Settings, all []Record) error {
	if s.Nodes == 0 {
		return nil
	}
	for _, other := range all {
		if other.Name == s.Name || other.ControlOnly {
			continue
		}
		for _, r := range []struct{ flag, own string }{{"service-cidr", s.ServiceCIDR}, {"cluster-cidr", s.ClusterCIDR}} {
			for _, theirs := range []string{other.ServiceCIDR, other.ClusterCIDR} {
				if overlap(r.own, theirs) {
					return fmt.Errorf("--%s=%s overlaps with %s of cluster %s on this machine: choose another range", r.flag, r.own, theirs, other.Name)
				}
			}
		}
	}
	return nil
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

// CheckNodePorts reports another cluster with a node on this machine that
// opens some of the same NodePorts: connections would reach either's pods.
func CheckNodePorts(s Settings, all []Record) error {
	if s.Nodes == 0 {
		return nil // nothing of it is on this machine's network
	}
	own, err := utilnet.ParsePortRange(s.NodePortRange())
	if err != nil {
		return nil // the API server says what is wrong with a range
	}
	for _, other := range all {
		theirs, err := utilnet.ParsePortRange(other.NodePorts)
		if err != nil || other.Name == s.Name || other.ControlOnly || other.NodePorts == "" {
			continue
		}
		if own.Base < theirs.Base+theirs.Size && theirs.Base < own.Base+own.Size {
			return fmt.Errorf("cluster %s has NodePorts %s on this machine, which overlap with %s: choose others, as --apiserver-arg=service-node-port-range=%s",
				other.Name, strings.TrimSpace(other.NodePorts), s.NodePortRange(), nodePortsOf(max(s.Slot, 1)))
		}
	}
	return nil
}
