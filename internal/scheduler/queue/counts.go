package queue

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/scheduler/podgroup"
)

// Counts is how many pods are where.
type Counts struct {
	Active, Backoff, Unschedulable, Gated int
	// Rejected counts the unschedulable and gated pods by profile and plugin.
	Rejected map[[2]string]int
	// InFlightEvents counts by name the events that are kept for pods in flight.
	InFlightEvents map[string]int
	// Alone counts by queue the pods that belong to no group, and Groups the groups
	// with pods there. The queues are active, backoff, unschedulable and gated.
	Alone, Groups map[string]int
}

// Counts counts the pods.
func (q *Queue) Counts() Counts {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := Counts{Active: len(q.active.pods), Backoff: len(q.backoff.pods) + len(q.errorBackoff.pods), Unschedulable: len(q.unschedulable.pods), Gated: len(q.gated.pods), Rejected: map[[2]string]int{}, InFlightEvents: map[string]int{}, Alone: map[string]int{}, Groups: map[string]int{}}
	for key, pods := range q.rejected {
		c.Rejected[[2]string{key.profile, key.plugin}] = pods.count
	}
	for _, r := range q.flights.events {
		c.InFlightEvents[r.event.Name()]++
	}
	for queue, heaps := range map[string][]*podHeap{
		"active": {&q.active}, "backoff": {&q.backoff, &q.errorBackoff}, "unschedulable": {&q.unschedulable}, "gated": {&q.gated},
	} {
		c.Alone[queue], c.Groups[queue] = entities(heaps)
	}
	return c
}

// entities counts the pods without a group, and the groups of the others.
func entities(heaps []*podHeap) (alone, groups int) {
	seen := map[types.NamespacedName]bool{}
	for _, h := range heaps {
		for _, it := range h.pods {
			if group, ok := podgroup.Of(it.Pod); ok {
				seen[group] = true
			} else {
				alone++
			}
		}
	}
	return alone, len(seen)
}

// Pods returns the pods that wait or are in flight.
func (q *Queue) Pods() []*v1.Pod {
	q.mu.Lock()
	defer q.mu.Unlock()
	pods := make([]*v1.Pod, 0, len(q.pods)+len(q.flights.pods))
	for _, it := range q.pods {
		pods = append(pods, it.Pod)
	}
	for _, f := range q.flights.pods {
		pods = append(pods, f.latest.Pod)
	}
	return pods
}
