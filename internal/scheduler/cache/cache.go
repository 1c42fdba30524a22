// Package cache knows every pod on a node and keeps the Snapshot current.
//
//	informers ──► Set, Delete ─┐
//	cycle ──────► Assume ──────┼──► records, marked dirty ──► UpdateSnapshot ──► Snapshot (the cycle's own)
//	binding ────► Forget ──────┘
//
// A pod that the scheduler chose a node for is assumed: it counts on its node
// although its binding is under way. The informer confirms it; a failed
// binding forgets it. An informer that missed a pod's whole life never
// confirms it: Assumed returns such pods, for the API server to be asked.
//
//	        Assume              Set (bound)
//	(none) ───────► assumed ───────────────► added ──► Delete, Set (finished) ──► (none)
//	                   │ Forget, Delete                      ▲
//	                   └────────────► (none) ── Set ─────────┘
//
// Changes are applied between cycles, each object once however often it
// changed, so the memory for what is pending is bounded by the number of
// objects, and handlers of informers never wait for a decision.
package cache

import (
	"errors"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/podgroup"
)

// Cache is safe for concurrent use.
type Cache struct {
	mu         sync.Mutex // guards everything below but the content of snapshot
	pods       map[types.UID]*podRecord
	dirtyPods  []*podRecord
	nodes      map[string]*v1.Node // changed since the last update; nil is deleted
	nodeOrder  []string            // of nodes, so that the snapshot has the order of the events
	namespaces map[string]map[string]string
	deleted    map[string]bool // namespaces

	snapshot *framework.Snapshot
	numNodes int
	assumed  int
	placed   map[types.NamespacedName]int // pods on nodes of each pod group
	onNode   map[string]map[*podRecord]bool
	// priorities is how many pods have each.
	priorities map[int32]int
}

// podRecord holds the cache's state of a pod. applied and appliedNode are the
// state in the snapshot.
type podRecord struct {
	pod     *framework.PodInfo // nil: gone
	node    string
	assumed bool
	dirty   int // 1 + the index in dirtyPods; 0 is not there

	applied     *framework.PodInfo
	appliedNode string
}

// New returns an empty cache.
func New() *Cache {
	return &Cache{
		pods: map[types.UID]*podRecord{}, nodes: map[string]*v1.Node{}, namespaces: map[string]map[string]string{},
		deleted: map[string]bool{}, snapshot: framework.NewSnapshot(), placed: map[types.NamespacedName]int{},
		onNode: map[string]map[*podRecord]bool{}, priorities: map[int32]int{},
	}
}

// UpdateSnapshot applies all changes since the last call. Only the scheduling
// goroutine calls it; the snapshot is its own until the next call.
func (c *Cache) UpdateSnapshot() *framework.Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.snapshot
	s.Trim()
	for name := range c.deleted {
		s.DeleteNamespace(name)
	}
	clear(c.deleted)
	for name, labels := range c.namespaces {
		s.SetNamespace(name, labels)
	}
	clear(c.namespaces)
	for _, name := range c.nodeOrder {
		if node := c.nodes[name]; node != nil {
			s.SetNode(node)
		} else {
			s.DeleteNode(name)
		}
	}
	clear(c.nodes)
	c.nodeOrder = c.nodeOrder[:0]
	c.numNodes = s.NumNodes()
	for i, r := range c.dirtyPods {
		c.apply(r)
		c.dirtyPods[i] = nil
	}
	c.dirtyPods = c.dirtyPods[:0]
	return s
}

func (c *Cache) apply(r *podRecord) {
	r.dirty = 0
	switch {
	case r.applied != nil && r.pod != nil && r.appliedNode == r.node:
		if r.applied != r.pod {
			c.snapshot.UpdatePod(r.applied, r.pod, r.node)
		}
	default:
		if r.applied != nil {
			c.snapshot.RemovePod(r.applied, r.appliedNode)
		}
		if r.pod != nil {
			c.snapshot.AddPod(r.pod, r.node)
		}
	}
	if r.pod == nil {
		delete(c.pods, r.applied.Pod.UID)
	}
	r.applied, r.appliedNode = r.pod, r.node
}

// change replaces the state of a pod. The lock is held.
func (c *Cache) change(uid types.UID, pod *framework.PodInfo, node string, assumed bool) {
	r, ok := c.pods[uid]
	if !ok {
		if pod == nil {
			return
		}
		r = &podRecord{}
		c.pods[uid] = r
	}
	if r.assumed {
		c.assumed--
	}
	if assumed {
		c.assumed++
	}
	c.count(r.pod, -1)
	c.count(pod, +1)
	c.move(r, pod, node)
	r.pod, r.node, r.assumed = pod, node, assumed
	if pod == nil && r.applied == nil { // the snapshot never had it
		delete(c.pods, uid)
		c.clean(r)
		return
	}
	if r.dirty == 0 {
		c.dirtyPods = append(c.dirtyPods, r)
		r.dirty = len(c.dirtyPods)
	}
}

// clean removes a record from dirtyPods; the last one takes its place.
func (c *Cache) clean(r *podRecord) {
	if r.dirty == 0 {
		return
	}
	last := len(c.dirtyPods) - 1
	c.dirtyPods[r.dirty-1] = c.dirtyPods[last]
	c.dirtyPods[r.dirty-1].dirty = r.dirty
	c.dirtyPods[last] = nil
	c.dirtyPods, r.dirty = c.dirtyPods[:last], 0
}

// move notes that a pod, nil if it is gone, is on another node than its record
// says.
func (c *Cache) move(r *podRecord, pod *framework.PodInfo, node string) {
	if r.pod != nil && pod != nil && r.node == node {
		return
	}
	if r.pod != nil {
		if delete(c.onNode[r.node], r); len(c.onNode[r.node]) == 0 {
			delete(c.onNode, r.node)
		}
	}
	if pod == nil {
		return
	}
	if c.onNode[node] == nil {
		c.onNode[node] = map[*podRecord]bool{}
	}
	c.onNode[node][r] = true
}

// count adds n pods to the numbers of pods of a priority and of a pod group; nil
// has none.
func (c *Cache) count(pod *framework.PodInfo, n int) {
	if pod == nil {
		return
	}
	if c.priorities[pod.Priority] += n; c.priorities[pod.Priority] == 0 {
		delete(c.priorities, pod.Priority)
	}
	group, ok := podgroup.Of(pod.Pod)
	if !ok {
		return
	}
	if c.placed[group] += n; c.placed[group] == 0 {
		delete(c.placed, group)
	}
}

// SetPod takes the state of an assigned pod from the API. It confirms what was
// assumed. A finished pod no longer counts.
func (c *Cache) SetPod(pod *v1.Pod) {
	if podquery.IsFinished(pod) {
		c.DeletePod(pod.UID)
		return
	}
	c.mu.Lock()
	var known *framework.PodInfo
	if r, ok := c.pods[pod.UID]; ok {
		known = r.pod
	}
	c.mu.Unlock()
	var info *framework.PodInfo // parsed without the lock: one informer brings all versions of a pod
	if known != nil {
		info = known.Update(pod)
	} else {
		info = framework.NewPodInfo(pod)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.change(pod.UID, info, pod.Spec.NodeName, false)
}

// DeletePod forgets a pod that is gone.
func (c *Cache) DeletePod(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.change(uid, nil, "", false)
}

// Assume counts a pod on a node until it is confirmed or forgotten.
func (c *Cache) Assume(pod *framework.PodInfo, node string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r, ok := c.pods[pod.Pod.UID]; ok && r.pod != nil {
		return errors.New("the pod is on a node already")
	}
	c.change(pod.Pod.UID, pod, node, true)
	return nil
}

// Forget ends an assumption. It does nothing to a pod that was confirmed.
func (c *Cache) Forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r, ok := c.pods[uid]; ok && r.assumed {
		c.change(uid, nil, "", false)
	}
}

// Pods returns the node of each pod that is on one, known or assumed.
func (c *Cache) Pods() map[*v1.Pod]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	pods := make(map[*v1.Pod]string, len(c.pods))
	for _, r := range c.pods {
		if r.pod != nil {
			pods[r.pod.Pod] = r.node
		}
	}
	return pods
}

// Assumed returns the pods that are assumed.
func (c *Cache) Assumed() []*v1.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.assumed == 0 {
		return nil
	}
	var pods []*v1.Pod
	for _, r := range c.pods {
		if r.assumed {
			pods = append(pods, r.pod.Pod)
		}
	}
	return pods
}

// HasPod reports whether the pod is on a node, known or assumed.
func (c *Cache) HasPod(uid types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.pods[uid]
	return ok && r.pod != nil
}

// NumPlaced returns how many pods of a pod group are on nodes, known or assumed.
func (c *Cache) NumPlaced(group types.NamespacedName) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.placed[group]
}

// RequestedOn implements framework.BoundPods.
func (c *Cache) RequestedOn(node string) (sum framework.Resources) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r := range c.onNode[node] {
		if !r.assumed {
			sum.Add(r.pod.Requests)
		}
	}
	return sum
}

// HasBelow implements framework.BoundPods.
func (c *Cache) HasBelow(priority int32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range c.priorities {
		if p < priority {
			return true
		}
	}
	return false
}

// SetNode adds or updates a node.
func (c *Cache) SetNode(node *v1.Node) { c.changeNode(node.Name, node) }

// DeleteNode removes a node.
func (c *Cache) DeleteNode(name string) { c.changeNode(name, nil) }

func (c *Cache) changeNode(name string, node *v1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, pending := c.nodes[name]; !pending {
		c.nodeOrder = append(c.nodeOrder, name)
	}
	c.nodes[name] = node
}

// SetNamespace takes the labels of a namespace.
func (c *Cache) SetNamespace(name string, labels map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.deleted, name)
	c.namespaces[name] = labels
}

// DeleteNamespace forgets a namespace.
func (c *Cache) DeleteNamespace(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.namespaces, name)
	c.deleted[name] = true
}

// Size counts the nodes of the last snapshot, the pods and the assumed pods.
func (c *Cache) Size() (nodes, pods, assumed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.numNodes, len(c.pods), c.assumed
}
