// Package podgroup knows which pods belong together: those whose
// spec.schedulingGroup names the same PodGroup (KEP-4671).
package podgroup

import (
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Groups implements framework.PodGroups. It is safe for concurrent use.
type Groups struct {
	mu      sync.Mutex // guards members
	members map[types.NamespacedName]map[types.UID]*v1.Pod
}

// New returns groups without pods.
func New() *Groups {
	return &Groups{members: map[types.NamespacedName]map[types.UID]*v1.Pod{}}
}

// Of returns the group of a pod; ok is false if it has none.
func Of(pod *v1.Pod) (group types.NamespacedName, ok bool) {
	if g := pod.Spec.SchedulingGroup; g != nil && g.PodGroupName != nil {
		return types.NamespacedName{Namespace: pod.Namespace, Name: *g.PodGroupName}, true
	}
	return types.NamespacedName{}, false
}

// Set adds a pod, or takes a newer version of it.
func (g *Groups) Set(pod *v1.Pod) {
	group, ok := Of(pod)
	if !ok {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.members[group] == nil {
		g.members[group] = map[types.UID]*v1.Pod{}
	}
	g.members[group][pod.UID] = pod
}

// Delete forgets a pod.
func (g *Groups) Delete(pod *v1.Pod) {
	group, ok := Of(pod)
	if !ok {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if delete(g.members[group], pod.UID); len(g.members[group]) == 0 {
		delete(g.members, group)
	}
}

// Count returns how many members a group has.
func (g *Groups) Count(group types.NamespacedName) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.members[group])
}

// Members returns the pods of a group that wait, are assumed or are bound.
func (g *Groups) Members(group types.NamespacedName) []*v1.Pod {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Values(g.members[group]))
}
