package framework

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
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
			r.CPU = q.MilliValue()
		case v1.ResourceMemory:
			r.Memory = q.Value()
		case v1.ResourceEphemeralStorage:
			r.EphemeralStorage = q.Value()
		case v1.ResourcePods:
			r.Pods = q.Value()
		default:
			if r.Scalar == nil {
				r.Scalar = map[v1.ResourceName]int64{}
			}
			r.Scalar[name] = q.Value()
		}
	}
	return r
}

func (r *Resources) add(o Resources, sign int64) {
	r.CPU += sign * o.CPU
	r.Memory += sign * o.Memory
	r.EphemeralStorage += sign * o.EphemeralStorage
	r.Pods += sign * o.Pods
	for name, n := range o.Scalar {
		if r.Scalar == nil {
			r.Scalar = map[v1.ResourceName]int64{}
		}
		r.Scalar[name] += sign * n
	}
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
	n.count(p, 1)
}

// RemovePod takes a pod off the node, if it is there.
func (n *Node) RemovePod(uid types.UID) {
	if p, ok := n.Pods[uid]; ok {
		delete(n.Pods, uid)
		n.count(p, -1)
	}
}

func (n *Node) count(p *Pod, sign int64) {
	n.Requested.add(p.Requests, sign)
	n.NonZero.CPU += sign * p.NonZeroCPU
	n.NonZero.Memory += sign * p.NonZeroMemory
	for _, port := range p.Ports {
		if n.ports[port] += int(sign); n.ports[port] == 0 {
			delete(n.ports, port)
		}
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
