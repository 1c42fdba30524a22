package queue

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
