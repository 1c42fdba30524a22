package proxy

import (
	"net/netip"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/persistent"
)

// Rules is everything that a node's proxy does, as a value. It depends only on
// API objects and the node. The maps and the values in them are never changed. A value
// that is the same as in earlier Rules has the same pointer.
type Rules struct {
	Services  ServicePorts
	HostPorts map[LocalPort]HostPort
	// ServiceCIDRs are the ranges of cluster IPs, in order.
	ServiceCIDRs []netip.Prefix
	// NodePortRanges are where node ports answer.
	NodePortRanges NodePortRanges
	// LoopbackNodePorts says that node ports of IPv4 answer at loopback addresses, too,
	// if these are in NodePortRanges. Not every Backend can do that.
	LoopbackNodePorts bool
	// PodCIDRs are the ranges of this node's pods, by its object.
	PodCIDRs []netip.Prefix
}

// ServicePorts are ports of Services, by name. What differs between two values is found
// without a look at the rest: see Compare.
type ServicePorts = persistent.Map[PortName, *ServicePort]

// PortName identifies a port of a Service in one address family.
type PortName struct {
	types.NamespacedName
	Port     string
	Protocol v1.Protocol
	Family   v1.IPFamily
}

// Label returns the name of the port as kube-proxy has it, namespace/name:port.
func (n PortName) Label() string {
	if n.Port == "" {
		return n.NamespacedName.String()
	}
	return n.NamespacedName.String() + ":" + n.Port
}

// ServicePort describes where a port of a Service is reached and which
// endpoints answer.
type ServicePort struct {
	// Connections arrive at Port of the addresses ClusterIP and External, and
	// at NodePort of the node's addresses in NodePortRanges. NodePort 0 is none.
	ClusterIP netip.Addr
	External  []netip.Addr
	// LoadBalancer are external addresses that only clients in SourceRanges may
	// use. No ranges means all clients.
	LoadBalancer []netip.Addr
	SourceRanges []netip.Prefix
	Port         uint16
	NodePort     uint16

	// Cluster are the endpoints of all nodes, Local those on this node. Which
	// ones are used depends on the traffic policies.
	Cluster []netip.AddrPort
	Local   []netip.AddrPort
	// InternalLocal and ExternalLocal say that internalTrafficPolicy and
	// externalTrafficPolicy are Local.
	InternalLocal bool
	ExternalLocal bool
	// Affinity is how long a client stays with its endpoint; 0 turns affinity
	// off.
	Affinity time.Duration
	// HealthCheckNodePort is the port at which load balancers ask whether this
	// node has a local endpoint; 0 is none. ReadyLocal are the endpoints that
	// count there: unlike Local, it has no terminating ones.
	HealthCheckNodePort uint16
	ReadyLocal          []netip.AddrPort
}

// LocalPort is a port of this node. An invalid address means all addresses of the
// family.
type LocalPort struct {
	Address  netip.Addr
	Port     uint16
	Protocol v1.Protocol
	Family   v1.IPFamily
}

// HostPort is where connections to a host port lead.
type HostPort struct {
	Pod types.NamespacedName
	To  netip.AddrPort
}

// Node is the part of this node that rules depend on.
type Node struct {
	Name string
	// Zone is the node's label topology.kubernetes.io/zone.
	Zone string
}
