package framework

import (
	"maps"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/amount"
	"github.com/coracle-io/coracle/internal/podquery"
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

// Of returns the amount of one resource. Pods are no resource of a pod: 0.
func (r *Resources) Of(name v1.ResourceName) int64 {
	switch name {
	case v1.ResourceCPU:
		return r.CPU
	case v1.ResourceMemory:
		return r.Memory
	case v1.ResourceEphemeralStorage:
		return r.EphemeralStorage
	}
	return r.Scalar[name]
}

// Add adds amounts. A sum that does not fit an int64 becomes the largest int64.
func (r *Resources) Add(o Resources) {
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

func (r *Resources) equal(o *Resources) bool {
	return r.CPU == o.CPU && r.Memory == o.Memory && r.EphemeralStorage == o.EphemeralStorage && r.Pods == o.Pods && maps.Equal(r.Scalar, o.Scalar)
}

func (r *Resources) overflown() bool {
	for _, n := range r.Scalar {
		if n == math.MaxInt64 {
			return true
		}
	}
	return max(r.CPU, r.Memory, r.EphemeralStorage, r.Pods) == math.MaxInt64
}

// NodeInfo is a node with the pods that are on it or assumed to be. It belongs
// to the Snapshot.
type NodeInfo struct {
	Node        *v1.Node // nil while pods are known but the node is not
	Name        string
	Allocatable Resources
	Requested   Resources // the sum of the pods' requests
	// NonZeroRequested is Requested with a floor for containers that request
	// nothing (100m CPU, 200 MB), so that those spread too.
	NonZeroRequested Resources
	Pods             []*PodInfo
	// Generation identifies the state of the node and its pods: after every
	// change that a plugin can see, the snapshot gives it a number that no node
	// had before.
	Generation uint64
	// Slot is the node's index in tables with a row for each node. It is taken
	// by another node once this one is gone.
	Slot int

	ports  podquery.HostPortSet // of the pods
	images map[string]bool      // names of the images on the node
}

// NewNodeInfo returns a node without pods.
func NewNodeInfo(name string) *NodeInfo {
	return &NodeInfo{Name: name}
}

// SetNode takes a new version of the API object.
func (n *NodeInfo) SetNode(node *v1.Node) {
	n.Node = node
	n.Allocatable = ResourcesOf(node.Status.Allocatable)
	n.images = make(map[string]bool, len(node.Status.Images))
	for i := range node.Status.Images {
		for _, name := range node.Status.Images[i].Names {
			n.images[name] = true
		}
	}
}

// HasImage reports whether the node holds an image, by its normalized name.
func (n *NodeInfo) HasImage(name string) bool { return n.images[name] }

// AddPod puts a pod on the node.
func (n *NodeInfo) AddPod(p *PodInfo) {
	n.Pods = append(n.Pods, p)
	n.request(p)
	for _, port := range p.Ports {
		n.ports.Add(port)
	}
}

// RemovePod takes a pod off the node and reports whether it was there.
func (n *NodeInfo) RemovePod(uid types.UID) bool {
	i := slices.IndexFunc(n.Pods, func(p *PodInfo) bool { return p.Pod.UID == uid })
	if i < 0 {
		return false
	}
	p, last := n.Pods[i], len(n.Pods)-1
	n.Pods[i] = n.Pods[last]
	n.Pods[last] = nil
	n.Pods = n.Pods[:last]
	requested, floor := n.Requested.subtract(p.Requests), n.NonZeroRequested.subtract(p.nonZero())
	if !requested || !floor {
		n.sum()
	}
	for _, port := range p.Ports {
		n.ports.Remove(port)
	}
	return true
}

// Without returns the pod of a UID and what the node has and gives to the other pods. If
// the pod is not there, that is nil and the node itself.
func (n *NodeInfo) Without(uid types.UID) (rest *NodeInfo, pod *PodInfo) {
	i := slices.IndexFunc(n.Pods, func(p *PodInfo) bool { return p.Pod.UID == uid })
	if i < 0 {
		return n, nil
	}
	rest = &NodeInfo{Node: n.Node, Name: n.Name, Allocatable: n.Allocatable}
	for j, p := range n.Pods {
		if j != i {
			rest.request(p)
		}
	}
	return rest, n.Pods[i]
}

// ReplacePod puts a newer version of a pod in the place of an older one that
// counts the same.
func (n *NodeInfo) ReplacePod(p *PodInfo) {
	if i := slices.IndexFunc(n.Pods, func(o *PodInfo) bool { return o.Pod.UID == p.Pod.UID }); i >= 0 {
		n.Pods[i] = p
	}
}

func (n *NodeInfo) request(p *PodInfo) {
	n.Requested.Add(p.Requests)
	n.NonZeroRequested.Add(p.nonZero())
}

// sum adds up anew what the pods request.
func (n *NodeInfo) sum() {
	n.Requested, n.NonZeroRequested = Resources{}, Resources{}
	for _, p := range n.Pods {
		n.request(p)
	}
}

// PortTaken reports whether a pod on the node occupies the port on the same
// or on every address.
func (n *NodeInfo) PortTaken(p podquery.HostPort) bool { return n.ports.Conflicts(p) }
