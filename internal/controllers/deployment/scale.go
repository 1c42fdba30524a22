package deployment

import (
	"cmp"
	"math"
	"slices"

	apps "k8s.io/api/apps/v1"
)

// scaling is one ReplicaSet and the size it should get.
type scaling struct {
	rs *apps.ReplicaSet
	to int32
}

// growCurrent says how large the current ReplicaSet of a Deployment should be
// now: as large as wanted, within the surge that the old pods leave.
func growCurrent(d *apps.Deployment, s sets) int32 {
	if size(s.current) > wanted(d) || d.Spec.Strategy.Type == apps.RecreateDeploymentStrategyType {
		return wanted(d)
	}
	surge, _ := limits(d)
	room := wanted(d) + surge - total(s.all(), size)
	if room <= 0 {
		return size(s.current)
	}
	return min(wanted(d), size(s.current)+room)
}

// shrinkOld says which old ReplicaSets of a rolling update can be made
// smaller now: first by their pods that are not available anyway, then by as
// many available ones as there are more than needed. Oldest first.
func shrinkOld(d *apps.Deployment, s sets) []scaling {
	_, unavailable := limits(d)
	needed := wanted(d) - unavailable
	budget := total(s.all(), size) - needed
	if s.current != nil {
		budget -= size(s.current) - available(s.current)
	}
	if budget <= 0 {
		return nil
	}
	to := make([]int32, len(s.old))
	for i, rs := range s.old {
		broken := max(0, min(budget, size(rs)-available(rs)))
		to[i] = size(rs) - broken
		budget -= broken
	}
	spare := total(s.all(), available) - needed
	for i := range s.old {
		if spare <= 0 {
			break
		}
		healthy := min(to[i], spare)
		to[i] -= healthy
		spare -= healthy
	}
	var out []scaling
	for i, rs := range s.old {
		if to[i] != size(rs) {
			out = append(out, scaling{rs, to[i]})
		}
	}
	return out
}

// rescale says how the ReplicaSets should be sized when the Deployment is
// scaled, or paused, and not rolled out: the only active one gets it all, a
// complete roll-out drops the rest, and in the middle of a roll-out each gets
// its proportion.
func rescale(d *apps.Deployment, s sets) []scaling {
	running := active(s.all())
	if len(running) <= 1 {
		only := s.current
		if len(running) == 1 {
			only = running[0]
		} else if only == nil && len(s.old) > 0 {
			only = s.old[len(s.old)-1]
		}
		if only == nil {
			return nil
		}
		return []scaling{{only, wanted(d)}}
	}
	if saturated(d, s.current) {
		var out []scaling
		for _, rs := range active(s.old) {
			out = append(out, scaling{rs, 0})
		}
		return out
	}
	if d.Spec.Strategy.Type != apps.RollingUpdateDeploymentStrategyType {
		return nil
	}
	return proportional(d, running)
}

// saturated reports whether a ReplicaSet has all the Deployment's pods and
// all are available.
func saturated(d *apps.Deployment, rs *apps.ReplicaSet) bool {
	if rs == nil {
		return false
	}
	desired, ok := numberAnnotation(rs, desiredAnnotation)
	return ok && size(rs) == wanted(d) && desired == wanted(d) && available(rs) == wanted(d)
}

// proportional spreads the replicas to be added or removed over several
// ReplicaSets by their sizes. What rounding leaves goes to the largest.
func proportional(d *apps.Deployment, running []*apps.ReplicaSet) []scaling {
	surge, _ := limits(d)
	allowed := int32(0)
	if wanted(d) > 0 {
		allowed = wanted(d) + surge
	}
	add := allowed - total(running, size)
	sorted := slices.SortedFunc(slices.Values(running), func(a, b *apps.ReplicaSet) int {
		byAge := compareAge(a, b)
		if add > 0 {
			byAge = -byAge
		}
		return cmp.Or(cmp.Compare(size(b), size(a)), byAge)
	})
	out := make([]scaling, len(sorted))
	added := int32(0)
	for i, rs := range sorted {
		part := int32(0)
		if left := add - added; left > 0 {
			part = min(share(rs, d, allowed), left)
		} else if left < 0 {
			part = max(share(rs, d, allowed), left)
		}
		added += part
		out[i] = scaling{rs, size(rs) + part}
	}
	if len(out) > 0 {
		out[0].to = max(0, out[0].to+add-added)
	}
	return out
}

// share is by how much a ReplicaSet's size changes if it keeps its part of
// the whole. The whole as it was is in its annotation.
func share(rs *apps.ReplicaSet, d *apps.Deployment, allowed int32) int32 {
	if wanted(d) == 0 {
		return -size(rs)
	}
	before, ok := numberAnnotation(rs, maxAnnotation)
	if !ok || before == 0 {
		before = d.Status.Replicas
	}
	if before == 0 {
		return 0
	}
	whole := math.Round(float64(size(rs)) * float64(allowed) / float64(before))
	return int32(max(0, min(whole, math.MaxInt32))) - size(rs)
}

// needsRescale reports whether a Deployment was scaled since its ReplicaSets
// were sized last.
func needsRescale(d *apps.Deployment, s sets) bool {
	return slices.ContainsFunc(active(s.all()), func(rs *apps.ReplicaSet) bool {
		desired, ok := numberAnnotation(rs, desiredAnnotation)
		return ok && desired != wanted(d)
	})
}

// expired are the old ReplicaSets above the history limit, of the oldest
// revisions, that are empty.
func expired(d *apps.Deployment, old []*apps.ReplicaSet) []*apps.ReplicaSet {
	if d.Spec.RevisionHistoryLimit == nil || *d.Spec.RevisionHistoryLimit == math.MaxInt32 {
		return nil
	}
	alive := slices.DeleteFunc(slices.Clone(old), func(rs *apps.ReplicaSet) bool { return rs.DeletionTimestamp != nil })
	extra := len(alive) - int(*d.Spec.RevisionHistoryLimit)
	if extra <= 0 {
		return nil
	}
	slices.SortStableFunc(alive, func(a, b *apps.ReplicaSet) int {
		return cmp.Or(cmp.Compare(revision(a), revision(b)), compareAge(a, b))
	})
	return slices.DeleteFunc(alive[:extra], func(rs *apps.ReplicaSet) bool {
		return rs.Status.Replicas != 0 || size(rs) != 0 || rs.Generation > rs.Status.ObservedGeneration
	})
}
