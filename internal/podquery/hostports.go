package podquery

import (
	"cmp"
	"iter"
	"net/netip"

	v1 "k8s.io/api/core/v1"
	netutils "k8s.io/utils/net"
)

// HostPort is a port of a node that a pod has for itself.
type HostPort struct {
	Address  netip.Addr // invalid: all addresses of the node
	Port     int32
	Protocol v1.Protocol
}

// Conflicts reports whether two pods cannot have the ports on one node.
func (p HostPort) Conflicts(o HostPort) bool {
	return p.Port == o.Port && p.Protocol == o.Protocol && (p.Address == o.Address || !p.Address.IsValid() || !o.Address.IsValid())
}

// HostPortSet finds conflicts with many ports in the time of one: a pod may declare
// tens of thousands. The zero value is empty.
type HostPortSet struct {
	// each has how often each port was added, any those without their addresses.
	each, any map[HostPort]int
}

// Add adds a port.
func (s *HostPortSet) Add(p HostPort) {
	if s.each == nil {
		s.each, s.any = map[HostPort]int{}, map[HostPort]int{}
	}
	s.each[p]++
	s.any[p.everywhere()]++
}

// Remove undoes one Add of a port.
func (s *HostPortSet) Remove(p HostPort) {
	decrement(s.each, p)
	decrement(s.any, p.everywhere())
}

func decrement(counts map[HostPort]int, p HostPort) {
	if counts[p]--; counts[p] == 0 {
		delete(counts, p)
	}
}

// Empty reports whether the set has no ports.
func (s *HostPortSet) Empty() bool { return len(s.each) == 0 }

// Conflicts reports whether p conflicts with a port of the set.
func (s *HostPortSet) Conflicts(p HostPort) bool {
	all := p.everywhere()
	return s.each[p] > 0 || s.each[all] > 0 || p == all && s.any[all] > 0
}

// everywhere returns the port at all addresses.
func (p HostPort) everywhere() HostPort {
	p.Address = netip.Addr{}
	return p
}

// HostPorts yields the host ports of a pod, each with the port of the container
// that declares it. Only containers that run as long as the pod have host ports:
// regular containers and sidecars. A pod in the host's network has those that it
// declares, because its containers listen on them.
//
// The scheduler, the admission of the kubelet, the proxy and the load balancer
// decide by this definition alone. With two of them, a pod could get a port that
// one of them counts as another pod's.
func HostPorts(s *v1.PodSpec) iter.Seq2[HostPort, *v1.ContainerPort] {
	return func(yield func(HostPort, *v1.ContainerPort) bool) {
		inits := len(s.InitContainers)
		for c := range Containers(s) {
			if inits--; inits >= 0 && !IsSidecar(c) {
				continue
			}
			for j := range c.Ports {
				if p := &c.Ports[j]; p.HostPort > 0 && !yield(hostPort(p), p) {
					return
				}
			}
		}
	}
}

// hostPort returns the host port of a container's port. The API server accepts any
// text as hostIP: one that is no address stands for all addresses, so that no
// spelling of an address differs from it.
func hostPort(p *v1.ContainerPort) HostPort {
	h := HostPort{Port: p.HostPort, Protocol: cmp.Or(p.Protocol, v1.ProtocolTCP)}
	if a, ok := netip.AddrFromSlice(netutils.ParseIPSloppy(p.HostIP)); ok && !a.Unmap().IsUnspecified() {
		h.Address = a.Unmap()
	}
	return h
}
