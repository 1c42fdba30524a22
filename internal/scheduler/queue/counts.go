package queue

import v1 "k8s.io/api/core/v1"

// Counts is how many pods are where.
type Counts struct {
	Active, Backoff, Unschedulable, Gated int
	// Rejected counts the unschedulable and gated pods by profile and plugin.
	Rejected map[[2]string]int
	// InFlightEvents counts by name the events that are kept for pods in flight.
	InFlightEvents map[string]int
}

// Counts counts the pods.
func (q *Queue) Counts() Counts {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := Counts{Active: len(q.active.pods), Backoff: len(q.backoff.pods) + len(q.errorBackoff.pods), Unschedulable: len(q.unschedulable.pods), Gated: len(q.gated.pods), Rejected: map[[2]string]int{}, InFlightEvents: map[string]int{}}
	for key, pods := range q.rejected {
		c.Rejected[[2]string{key.profile, key.plugin}] = pods.count
	}
	for _, r := range q.flights.events {
		c.InFlightEvents[r.event.Name()]++
	}
	return c
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
