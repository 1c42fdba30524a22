package networkpolicy

import (
	"net/netip"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/persistent"
)

// Rules are the rules that a node enforces. A Backend applies them. The maps of
// a Rules are never changed once it was returned. What differs between the Groups and
// Ports of successive Rules is found without a look at the rest.
type Rules struct {
	// Pods are the isolated pods of this node, by their addresses.
	Pods map[netip.Addr]Isolation
	// Owners are the UIDs of the pods of this node, by their addresses. The UID
	// of a static pod is known once the kubelet has admitted the pod.
	Owners map[netip.Addr]types.UID
	// Policies are the policies that select pods of this node, without TooLarge.
	Policies map[types.NamespacedName]*Policy
	// TooLarge are those that isolate their pods and allow nothing, because the
	// policies of their namespace are too large together, or too many.
	TooLarge []types.NamespacedName
	// Groups are the addresses of the pods that peers of Policies select.
	Groups map[Group]Addresses
	// Ports are the container ports that the named ports of Policies stand for.
	Ports map[NamedPort]PodPorts
}

// Addresses is a set of addresses.
type Addresses = persistent.Map[netip.Addr, struct{}]

// PodPorts is a set of pods' addresses, each with the number of a port.
type PodPorts = persistent.Map[netip.AddrPort, struct{}]

// Isolation lists the policies that isolate a pod. In a direction in which no
// policy isolates a pod, all its traffic is allowed.
type Isolation struct {
	// Ingress and Egress are the policies that isolate the pod in that direction,
	// in order. Traffic passes if one of them allows it.
	Ingress, Egress []types.NamespacedName
}

// Policy holds the traffic that a NetworkPolicy allows.
type Policy struct {
	Ingress, Egress []Rule
}

// Rule allows the traffic with its peers at its ports. The ports are
// destination ports.
type Rule struct {
	// AnyPeer allows every peer.
	AnyPeer bool
	// Groups and Blocks are the peers. Blocks are in order, and do not overlap or
	// touch.
	Groups []Group
	Blocks []Block

	// AnyPort allows everything, also protocols without ports.
	AnyPort bool
	// Ports are in order. Those of one protocol do not overlap or touch.
	Ports []Ports
	Named []NamedPort
}

// Group selects pods, in one namespace or in namespaces that are selected by
// their labels. It has the texts of selectors, so that equal peers are one
// group.
type Group struct {
	// Namespace is the namespace of the pods; if it is empty, Namespaces selects
	// them.
	Namespace  string
	Namespaces string
	Pods       string
}

// Block is a range of addresses of one family, with its ends.
type Block struct {
	From, To netip.Addr
}

// Ports is a range of ports, with its ends.
type Ports struct {
	Protocol v1.Protocol
	From, To uint16
}

// NamedPort is a port that each pod has its own number for.
type NamedPort struct {
	Protocol v1.Protocol
	Name     string
}
