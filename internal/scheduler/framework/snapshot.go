package framework

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Snapshot is the cluster as decisions see it. The cache brings it up to date
// between cycles by applying what changed; during a cycle it belongs to the
// scheduling goroutine, which reads it without locks. Trials change it in
// place and undo their changes, so nothing is ever copied.
type Snapshot struct {
	nodes      []*NodeInfo          // with a Node, in the order they came
	byName     map[string]*NodeInfo // the same
	known      map[string]*NodeInfo // also those known only by their pods
	namespaces map[string]map[string]string
	images     map[string]ImageState
	index      *podIndex
	topologies map[string]*Topology
	generation uint64 // the last that a node was given
	numSlots   int
	freeSlots  []int
	claims     map[string]int // how many pods on nodes use each, by "namespace/name"
}

// ImageState is an image that nodes hold.
type ImageState struct {
	Size     int64 // bytes
	NumNodes int
}

// NewSnapshot returns an empty cluster.
func NewSnapshot() *Snapshot {
	return &Snapshot{
		byName: map[string]*NodeInfo{}, known: map[string]*NodeInfo{}, namespaces: map[string]map[string]string{},
		images: map[string]ImageState{}, index: newPodIndex(), topologies: map[string]*Topology{},
		claims: map[string]int{},
	}
}

// Nodes returns all nodes. The slice must not be changed or kept.
func (s *Snapshot) Nodes() []*NodeInfo { return s.nodes }

// NumNodes returns how many nodes there are.
func (s *Snapshot) NumNodes() int { return len(s.nodes) }

// NumSlots is greater than the Slot of every node.
func (s *Snapshot) NumSlots() int { return s.numSlots }

// Node returns a node, or nil.
func (s *Snapshot) Node(name string) *NodeInfo { return s.byName[name] }

// Namespaces returns the labels of each namespace. They must not be changed.
func (s *Snapshot) Namespaces() map[string]map[string]string { return s.namespaces }

// Image returns the size of an image and the number of nodes that have it, by
// its normalized name.
func (s *Snapshot) Image(name string) ImageState { return s.images[name] }

// NumImages returns how many names of images the nodes report.
func (s *Snapshot) NumImages() int { return len(s.images) }

// NumClaimUsers returns how many pods on nodes use a PersistentVolumeClaim, by
// "namespace/name".
func (s *Snapshot) NumClaimUsers(claim string) int { return s.claims[claim] }

// SetNode adds a node or takes a newer version of it.
func (s *Snapshot) SetNode(node *v1.Node) {
	n := s.node(node.Name)
	relabeled := n.Node == nil || !maps.Equal(n.Node.Labels, node.Labels)
	if n.Node == nil {
		s.nodes = append(s.nodes, n)
		s.byName[node.Name] = n
	} else {
		s.countImages(n.Node, -1)
	}
	n.SetNode(node)
	if relabeled {
		s.relabeled(n)
	}
	s.changed(n)
	s.countImages(node, 1)
}

// changed gives a node a new generation.
func (s *Snapshot) changed(n *NodeInfo) {
	s.generation++
	n.Generation = s.generation
}

// DeleteNode removes a node. Its pods stay until they are removed.
func (s *Snapshot) DeleteNode(name string) {
	n, ok := s.byName[name]
	if !ok {
		return
	}
	s.countImages(n.Node, -1)
	n.Node = nil
	s.relabeled(n)
	s.changed(n)
	delete(s.byName, name)
	s.nodes = slices.DeleteFunc(s.nodes, func(o *NodeInfo) bool { return o == n })
	s.drop(n)
}

// AddPod puts a pod on a node, which need not be known.
func (s *Snapshot) AddPod(p *PodInfo, node string) {
	n := s.node(node)
	n.AddPod(p)
	s.changed(n)
	s.index.add(n, p, 1)
	for _, claim := range p.Claims {
		s.claims[claim]++
	}
}

// RemovePod takes a pod off a node.
func (s *Snapshot) RemovePod(p *PodInfo, node string) {
	n, ok := s.known[node]
	if !ok || !n.RemovePod(p.Pod.UID) {
		return
	}
	s.changed(n)
	s.index.add(n, p, -1)
	for _, claim := range p.Claims {
		if s.claims[claim]--; s.claims[claim] == 0 {
			delete(s.claims, claim)
		}
	}
	s.drop(n)
}

// UpdatePod puts a newer version of a pod in the place of old on the same node.
func (s *Snapshot) UpdatePod(old, p *PodInfo, node string) {
	n, ok := s.known[node]
	if ok && old.countsLike(p) {
		n.ReplacePod(p)
		return
	}
	s.RemovePod(old, node)
	s.AddPod(p, node)
}

// countsLike reports whether all sums and indexes are the same with either
// version of a pod, and what plugins read of its status. It holds for versions that share what was parsed.
func (p *PodInfo) countsLike(o *PodInfo) bool {
	return p.Pod.UID == o.Pod.UID && p.Pod.Generation == o.Pod.Generation && maps.Equal(p.Pod.Labels, o.Pod.Labels) &&
		(p.Pod.DeletionTimestamp == nil) == (o.Pod.DeletionTimestamp == nil) && p.Pod.Status.StartTime.Equal(o.Pod.Status.StartTime) && p.Requests.equal(&o.Requests) &&
		p.NonZeroCPU == o.NonZeroCPU && p.NonZeroMemory == o.NonZeroMemory && slices.Equal(p.Ports, o.Ports) &&
		slices.Equal(p.Claims, o.Claims) && p.sameTerms(o)
}

func (p *PodInfo) sameTerms(o *PodInfo) bool {
	same := func(a, b AffinityTerm) bool { return a.TopologyKey == b.TopologyKey && a.key == b.key }
	weighted := func(a, b WeightedTerm) bool {
		return a.Weight == b.Weight && same(a.AffinityTerm, b.AffinityTerm)
	}
	return slices.EqualFunc(p.RequiredAffinity, o.RequiredAffinity, same) &&
		slices.EqualFunc(p.RequiredAntiAffinity, o.RequiredAntiAffinity, same) &&
		slices.EqualFunc(p.PreferredAffinity, o.PreferredAffinity, weighted) &&
		slices.EqualFunc(p.PreferredAntiAffinity, o.PreferredAntiAffinity, weighted)
}

// SetNamespace takes the labels of a namespace.
func (s *Snapshot) SetNamespace(name string, labels map[string]string) {
	if !maps.Equal(s.namespaces[name], labels) {
		s.index.forgetCounts()
	}
	s.namespaces[name] = labels
}

// DeleteNamespace forgets the labels of a namespace.
func (s *Snapshot) DeleteNamespace(name string) {
	delete(s.namespaces, name)
	s.index.forgetCounts()
}

// PodOn returns the pod of a UID on a node, or nil.
func (s *Snapshot) PodOn(node string, uid types.UID) *PodInfo {
	if n, ok := s.known[node]; ok {
		for _, p := range n.Pods {
			if p.Pod.UID == uid {
				return p
			}
		}
	}
	return nil
}

func (s *Snapshot) node(name string) *NodeInfo {
	n, ok := s.known[name]
	if !ok {
		n = NewNodeInfo(name)
		if free := len(s.freeSlots); free > 0 {
			n.Slot, s.freeSlots = s.freeSlots[free-1], s.freeSlots[:free-1]
		} else {
			n.Slot = s.numSlots
			s.numSlots++
		}
		s.known[name] = n
	}
	return n
}

// drop forgets a node that has neither an object nor pods.
func (s *Snapshot) drop(n *NodeInfo) {
	if n.Node == nil && len(n.Pods) == 0 {
		delete(s.known, n.Name)
		s.freeSlots = append(s.freeSlots, n.Slot)
	}
}

func (s *Snapshot) countImages(node *v1.Node, sign int) {
	for i := range node.Status.Images {
		for _, name := range node.Status.Images[i].Names {
			image := s.images[name]
			image.NumNodes += sign
			image.Size = node.Status.Images[i].SizeBytes
			if image.NumNodes == 0 {
				delete(s.images, name)
			} else {
				s.images[name] = image
			}
		}
	}
}
