package proxy

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/persistent"
)

// Difference names what differs between two values of the rules.
type Difference struct {
	Services  []PortName
	HostPorts []LocalPort
	// Ranges says that the ranges of Services or node ports differ, or whether node
	// ports answer at loopback addresses.
	Ranges bool
}

// Compare compares two values of the rules. A Service that did not change has the
// same pointer in both. If one value was made from the other, only what has changed is
// looked at, beside the host ports of this node.
func Compare(before, next Rules) (d Difference) {
	persistent.Diff(before.Services, next.Services, func(name PortName) { d.Services = append(d.Services, name) })
	for k, pod := range next.HostPorts {
		if before.HostPorts[k] != pod {
			d.HostPorts = append(d.HostPorts, k)
		}
	}
	for k := range before.HostPorts {
		if _, ok := next.HostPorts[k]; !ok {
			d.HostPorts = append(d.HostPorts, k)
		}
	}
	d.Ranges = !slices.Equal(before.ServiceCIDRs, next.ServiceCIDRs) || !slices.Equal(before.NodePortRanges, next.NodePortRanges) ||
		before.LoopbackNodePorts != next.LoopbackNodePorts
	return d
}

// HasDatagrams reports whether a UDP port differs.
func (d Difference) HasDatagrams() bool {
	return slices.ContainsFunc(d.Services, func(name PortName) bool { return name.Protocol == v1.ProtocolUDP }) ||
		slices.ContainsFunc(d.HostPorts, func(k LocalPort) bool { return k.Protocol == v1.ProtocolUDP })
}
