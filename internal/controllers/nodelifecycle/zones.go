package nodelifecycle

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/node/topology"
)

// labelExcludeDisruption is the label of nodes that do not count when the disruption of their zone
// is judged.
const labelExcludeDisruption = "node.kubernetes.io/exclude-disruption"

// zoneState is the disruption state of a zone.
type zoneState int

const (
	// stateNormal: nodes are evicted at the normal rate.
	stateNormal zoneState = iota
	// statePartialDisruption: so many nodes are not ready that the network may be faulty.
	// Nodes are evicted at the secondary rate, or not at all in a small cluster.
	statePartialDisruption
	// stateFullDisruption: no node of the zone is ready.
	stateFullDisruption
)

// zoneOf returns the key of a node's failure domain, or "" if its labels name none.
func zoneOf(node *v1.Node) string { return topology.GetZoneKey(node) }

// zone counts the nodes of a failure domain and limits the rate of evictions.
type zone struct {
	ready, notReady int
	excluded        int // by labelExcludeDisruption
	// lastEviction is when a node of the zone last got a NoExecute taint.
	lastEviction time.Time
}

// members returns the number that counts a node.
func (z *zone) members(m membership) *int {
	switch {
	case m.excluded:
		return &z.excluded
	case m.ready:
		return &z.ready
	}
	return &z.notReady
}

func (z *zone) state(threshold float32) zoneState {
	switch {
	case z.ready == 0 && z.notReady > 0:
		return stateFullDisruption
	case z.notReady > 2 && float32(z.notReady)/float32(z.ready+z.notReady) >= threshold:
		return statePartialDisruption
	}
	return stateNormal
}

// rates holds the flags for the eviction rate, in nodes per second.
type rates struct {
	normal, secondary float32
	threshold         float32
	large             int
}

// rate returns the eviction rate of a zone, in nodes per second. If all zones are fully
// disrupted, this controller is probably disconnected and the rate is 0.
func (r rates) rate(z *zone, allFullyDisrupted bool) float32 {
	switch {
	case allFullyDisrupted:
		return 0
	case z.state(r.threshold) != statePartialDisruption:
		return r.normal
	case z.ready+z.notReady > r.large:
		return r.secondary
	}
	return 0
}

// tryEvict returns the time until a node of the zone may be evicted. If that is 0, it
// counts as an eviction. never is true if the rate is 0.
func (z *zone) tryEvict(rate float32, now time.Time) (wait time.Duration, never bool) {
	if rate <= 0 {
		return 0, true
	}
	if next := z.lastEviction.Add(time.Duration(float64(time.Second) / float64(rate))); now.Before(next) {
		return next.Sub(now), false
	}
	z.lastEviction = now
	return 0, false
}

// allFullyDisrupted reports whether there are zones with nodes that count and all of these zones
// are fully disrupted.
func allFullyDisrupted(zones map[string]*zone, threshold float32) (all bool) {
	for _, z := range zones {
		if z.ready+z.notReady == 0 {
			continue
		}
		if z.state(threshold) != stateFullDisruption {
			return false
		}
		all = true
	}
	return all
}
