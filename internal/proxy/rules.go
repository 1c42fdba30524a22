package proxy

import (
	"net/netip"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Rules is all that a node's proxy does, as a value. It depends on nothing but
// the API's objects and the node. Values that a map holds are never changed;
// what did not change since earlier Rules is the same pointer there.
type Rules struct {
	Services  map[PortName]*ServicePort
	HostPorts map[HostPortKey]netip.AddrPort
}

// PortName names one port of one Service in one address family.
type PortName struct {
	types.NamespacedName
	Port     string
	Protocol v1.Protocol
	Family   v1.IPFamily
}

// ServicePort says where one port of a Service is reached and who answers.
type ServicePort struct {
	// ClusterIP and External addresses take connections at Port, every
	// address of the node at NodePort (0 is none).
	ClusterIP netip.Addr
	External  []netip.Addr
	// LoadBalancer addresses are External ones that only SourceRanges may
	// use; no ranges is everybody.
	LoadBalancer []netip.Addr
	SourceRanges []netip.Prefix
	Port         uint16
	NodePort     uint16

	// Cluster are the endpoints for connections that may go to any node,
	// Local those on this node, for the policies that ask for them.
	Cluster []netip.AddrPort
	Local   []netip.AddrPort
	// InternalLocal and ExternalLocal are internalTrafficPolicy and
	// externalTrafficPolicy Local.
	InternalLocal bool
	ExternalLocal bool
	// Affinity is how long a client stays with its endpoint; 0 is not.
	Affinity time.Duration
	// HealthCheckNodePort answers load balancers whether this node has a
	// local endpoint; 0 is none.
	HealthCheckNodePort uint16
}

// HostPortKey is a port of this node that a pod asked for; an invalid address
// is every address of the family.
type HostPortKey struct {
	Address  netip.Addr
	Port     uint16
	Protocol v1.Protocol
	Family   v1.IPFamily
}

// Node is what the proxy knows of the node that it runs on.
type Node struct {
	Name string
	// Zone is its label topology.kubernetes.io/zone.
	Zone string
}
