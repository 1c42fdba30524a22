package queue

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Nominator implements framework.Nominator. A pod stays nominated from when a
// PostFilter plugin, or its status, says so until it is assumed on a node,
// deleted, or loses its nomination.
type Nominator struct {
	// byNode is replaced, never changed: it is read for each node of a decision.
	byNode atomic.Pointer[map[string][]*framework.PodInfo]

	mu    sync.Mutex // guards nodes, and that byNode belongs to it
	nodes map[types.UID]string
}

// NewNominator returns one without nominated pods.
func NewNominator() *Nominator {
	n := &Nominator{nodes: map[types.UID]string{}}
	n.byNode.Store(&map[string][]*framework.PodInfo{})
	return n
}

// AddNominatedPod implements framework.Nominator.
func (n *Nominator) AddNominatedPod(pod *framework.PodInfo, node string) {
	if node == "" {
		node = pod.Pod.Status.NominatedNodeName
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.remove(pod.Pod.UID)
	if node == "" {
		return
	}
	n.nodes[pod.Pod.UID] = node
	n.replace(node, append(slices.Clone((*n.byNode.Load())[node]), pod))
}

// Update takes a newer version of a pod, if it is nominated.
func (n *Nominator) Update(pod *framework.PodInfo) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if node, ok := n.nodes[pod.Pod.UID]; ok {
		n.remove(pod.Pod.UID)
		n.nodes[pod.Pod.UID] = node
		n.replace(node, append(slices.Clone((*n.byNode.Load())[node]), pod))
	}
}

// replace sets the pods of a node, with the lock held.
func (n *Nominator) replace(node string, pods []*framework.PodInfo) {
	byNode := maps.Clone(*n.byNode.Load())
	if byNode[node] = pods; len(pods) == 0 {
		delete(byNode, node)
	}
	n.byNode.Store(&byNode)
}

// DeleteNominatedPod implements framework.Nominator.
func (n *Nominator) DeleteNominatedPod(uid types.UID) {
	if len(*n.byNode.Load()) == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.remove(uid)
}

func (n *Nominator) remove(uid types.UID) {
	node, ok := n.nodes[uid]
	if !ok {
		return
	}
	delete(n.nodes, uid)
	n.replace(node, slices.DeleteFunc(slices.Clone((*n.byNode.Load())[node]), func(p *framework.PodInfo) bool { return p.Pod.UID == uid }))
}

// NominatedPodsForNode implements framework.Nominator.
func (n *Nominator) NominatedPodsForNode(node string) []*framework.PodInfo {
	byNode := *n.byNode.Load()
	if len(byNode) == 0 {
		return nil
	}
	return byNode[node]
}

// Version implements framework.Nominator.
func (n *Nominator) Version() any { return n.byNode.Load() }

// NominatedNode implements framework.Nominator.
func (n *Nominator) NominatedNode(uid types.UID) string {
	if len(*n.byNode.Load()) == 0 {
		return ""
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.nodes[uid]
}
