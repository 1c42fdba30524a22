package nodelifecycle

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// disruption is how badly off a zone is.
type disruption int

const (
	// normal: pods are driven off lost nodes at the normal rate.
	normal disruption = iota
	// partial: so many nodes are lost that the fault may be the network's;
	// pods are driven off slowly, or not at all in a small cluster.
	partial
	// full: no node of the zone is ready.
	full
)

// zoneOf names a node's failure domain.
func zoneOf(node *v1.Node) string {
	return node.Labels[v1.LabelTopologyRegion] + ":\x00:" + node.Labels[v1.LabelTopologyZone]
}

// zone counts a failure domain's nodes and limits how often a node of it is
// marked for eviction.
type zone struct {
	ready, lost int
	// last is when a node was marked for eviction last.
	last time.Time
}

func (z *zone) disruption(threshold float32) disruption {
	switch {
	case z.ready == 0 && z.lost > 0:
		return full
	case z.lost > 2 && float32(z.lost)/float32(z.ready+z.lost) >= threshold:
		return partial
	}
	return normal
}

// rates are the flags that say how many nodes a second are marked.
type rates struct {
	normal, secondary float32
	threshold         float32
	large             int
}

// rate says how many nodes of a zone may be marked for eviction each second.
// When every zone is lost altogether it is this controller that is cut off,
// and nothing is evicted anywhere.
func (r rates) rate(z *zone, everythingLost bool) float32 {
	switch {
	case everythingLost:
		return 0
	case z.disruption(r.threshold) != partial:
		return r.normal
	case z.ready+z.lost > r.large:
		return r.secondary
	}
	return 0
}

// turn says how long a node of a zone has to wait until it may be marked, and
// takes the turn if that is 0. never is set if the zone's rate is 0.
func (z *zone) turn(rate float32, now time.Time) (wait time.Duration, never bool) {
	if rate <= 0 {
		return 0, true
	}
	if next := z.last.Add(time.Duration(float64(time.Second) / float64(rate))); now.Before(next) {
		return next.Sub(now), false
	}
	z.last = now
	return 0, false
}

// everythingLost reports whether there are zones and all are fully disrupted.
func everythingLost(zones map[string]*zone, threshold float32) bool {
	for _, z := range zones {
		if z.disruption(threshold) != full {
			return false
		}
	}
	return len(zones) > 0
}
