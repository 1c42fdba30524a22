package framework

import (
	"math"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/amount"
)

// Resources is an amount of each resource: CPU in millicores, the rest in
// bytes or units.
type Resources struct {
	CPU, Memory, EphemeralStorage int64
	Pods                          int64
	Scalar                        map[v1.ResourceName]int64
}

// ResourcesOf reads a ResourceList.
func ResourcesOf(list v1.ResourceList) Resources {
	var r Resources
	for name, q := range list {
		switch name {
		case v1.ResourceCPU:
			r.CPU = amount.Milli(q)
		case v1.ResourceMemory:
			r.Memory = amount.Value(q)
		case v1.ResourceEphemeralStorage:
			r.EphemeralStorage = amount.Value(q)
		case v1.ResourcePods:
			r.Pods = amount.Value(q)
		default:
			if r.Scalar == nil {
				r.Scalar = map[v1.ResourceName]int64{}
			}
			r.Scalar[name] = amount.Value(q)
		}
	}
	return r
}

// add adds amounts. What is more than an int64 holds is the largest one.
func (r *Resources) add(o Resources) {
	r.CPU = amount.Sum(r.CPU, o.CPU)
	r.Memory = amount.Sum(r.Memory, o.Memory)
	r.EphemeralStorage = amount.Sum(r.EphemeralStorage, o.EphemeralStorage)
	r.Pods = amount.Sum(r.Pods, o.Pods)
	for name, n := range o.Scalar {
		if r.Scalar == nil {
			r.Scalar = map[v1.ResourceName]int64{}
		}
		r.Scalar[name] = amount.Sum(r.Scalar[name], n)
	}
}

// subtract takes away amounts that were added, unless the sum has become too
// large to tell what is left: ok is false then.
func (r *Resources) subtract(o Resources) (ok bool) {
	if r.overflown() {
		return false
	}
	r.CPU -= o.CPU
	r.Memory -= o.Memory
	r.EphemeralStorage -= o.EphemeralStorage
	r.Pods -= o.Pods
	for name, n := range o.Scalar {
		r.Scalar[name] -= n
	}
	return true
}

func (r *Resources) overflown() bool {
	for _, n := range r.Scalar {
		if n == math.MaxInt64 {
			return true
		}
	}
	return max(r.CPU, r.Memory, r.EphemeralStorage, r.Pods) == math.MaxInt64
}

// HostPort is a port of the host that a container occupies.
type HostPort struct {
	IP       string // "0.0.0.0" is every address
	Protocol v1.Protocol
	Port     int32
}

// Node is one node with the pods that are on it or assumed to be.
type Node struct {
	Node        *v1.Node // nil while pods are known but the node is not
	Name        string
	Allocatable Resources
	Requested   Resources // the sum of the pods' requests
	// NonZero is Requested with a floor for containers that request nothing
	// (100m CPU, 200 MB), so that those spread too.
	NonZero Resources
	Pods    map[types.UID]*Pod

	ports map[HostPort]int // how many pods have each
}

// NewNode returns a node without pods.
func NewNode(name string) *Node {
	return &Node{Name: name, Pods: map[types.UID]*Pod{}, ports: map[HostPort]int{}}
}

// SetNode takes a new version of the API object.
func (n *Node) SetNode(node *v1.Node) {
	n.Node = node
	n.Allocatable = ResourcesOf(node.Status.Allocatable)
}

// AddPod puts a pod on the node; a pod of the same UID is replaced.
func (n *Node) AddPod(p *Pod) {
	n.RemovePod(p.Pod.UID)
	n.Pods[p.Pod.UID] = p
	n.request(p)
	for _, port := range p.Ports {
		n.ports[port]++
	}
}

// RemovePod takes a pod off the node, if it is there.
func (n *Node) RemovePod(uid types.UID) {
	p, ok := n.Pods[uid]
	if !ok {
		return
	}
	delete(n.Pods, uid)
	if !n.Requested.subtract(p.Requests) || !n.NonZero.subtract(p.nonZero()) {
		n.sum()
	}
	for _, port := range p.Ports {
		if n.ports[port]--; n.ports[port] == 0 {
			delete(n.ports, port)
		}
	}
}

func (n *Node) request(p *Pod) {
	n.Requested.add(p.Requests)
	n.NonZero.add(p.nonZero())
}

// sum adds up anew what the pods request.
func (n *Node) sum() {
	n.Requested, n.NonZero = Resources{}, Resources{}
	for _, p := range n.Pods {
		n.request(p)
	}
}

// PortTaken reports whether a pod on the node occupies the port on the same
// or on every address.
func (n *Node) PortTaken(p HostPort) bool {
	for taken := range n.ports {
		if taken.Port == p.Port && taken.Protocol == p.Protocol &&
			(taken.IP == p.IP || taken.IP == anyAddress || p.IP == anyAddress) {
			return true
		}
	}
	return false
}
