package deployment

import (
	"cmp"
	"math"
	"slices"

	apps "k8s.io/api/apps/v1"

	"github.com/coracle-io/coracle/internal/order"
)

// scaling is a ReplicaSet and its new size.
type scaling struct {
	rs *apps.ReplicaSet
	to int32
}

// newReplicas returns spec.replicas for the new ReplicaSet, which is the desired number of
// replicas as far as maxSurge allows it beside the old pods.
func newReplicas(d *apps.Deployment, s sets) int32 {
	if replicas(s.newRS) > desired(d) || d.Spec.Strategy.Type == apps.RecreateDeploymentStrategyType {
		return desired(d)
	}
	surge, _ := limits(d)
	if !allObserved(s) {
		return replicas(s.newRS)
	}
	room := max(0, desired(d)+surge-total(s.all(), podsIncludingTerminating))
	return min(desired(d), podsIncludingTerminating(s.newRS)+room)
}

// scaleDownOld returns the old ReplicaSets to scale down now, oldest first. It removes
// unavailable pods first, and then as many available pods as maxUnavailable allows.
func scaleDownOld(d *apps.Deployment, s sets) []scaling {
	if !allObserved(s) {
		return nil
	}
	_, unavailable := limits(d)
	needed := desired(d) - unavailable
	budget := total(s.all(), replicas) - needed
	if s.newRS != nil {
		budget -= replicas(s.newRS) - availableAfterScaleDown(s.newRS)
	}
	if budget <= 0 {
		return nil
	}
	to := make([]int32, len(s.oldRSs))
	for i, rs := range s.oldRSs {
		unhealthy := min(budget, replicas(rs)-availableAfterScaleDown(rs))
		to[i] = replicas(rs) - unhealthy
		budget -= unhealthy
	}
	removable := total(s.all(), availableAfterScaleDown) - needed
	for i := range s.oldRSs {
		if removable <= 0 {
			break
		}
		healthy := min(to[i], removable)
		to[i] -= healthy
		removable -= healthy
	}
	var out []scaling
	for i, rs := range s.oldRSs {
		if to[i] != replicas(rs) {
			out = append(out, scaling{rs, to[i]})
		}
	}
	return out
}

// rescale returns the sizes of the ReplicaSets when the Deployment is scaled or paused and not
// rolled out. They grow only as far as maxSurge allows beside pods that are still to be deleted. A
// ReplicaSet may take back pods of its own that it has not deleted.
func rescale(d *apps.Deployment, s sets) []scaling {
	surge, _ := limits(d)
	room := max(0, desired(d)+surge-total(s.all(), podsIncludingTerminating))
	out := distribute(d, s)
	for i, s := range out {
		if growth := s.to - podsIncludingTerminating(s.rs); growth > room {
			out[i].to = podsIncludingTerminating(s.rs) + room
			room = 0
		} else if growth > 0 {
			room -= growth
		}
	}
	return out
}

// distribute distributes the replicas of a Deployment over its ReplicaSets. A single active
// ReplicaSet gets all replicas. If the new one is saturated, the others are scaled to zero.
// During a roll-out, each gets its proportion.
func distribute(d *apps.Deployment, s sets) []scaling {
	running := active(s.all())
	if len(running) <= 1 {
		only := s.newRS
		if len(running) == 1 {
			only = running[0]
		} else if only == nil && len(s.oldRSs) > 0 {
			only = s.oldRSs[len(s.oldRSs)-1]
		}
		if only == nil {
			return nil
		}
		return []scaling{{only, desired(d)}}
	}
	if saturated(d, s.newRS) {
		var out []scaling
		for _, rs := range active(s.oldRSs) {
			out = append(out, scaling{rs, 0})
		}
		return out
	}
	if d.Spec.Strategy.Type != apps.RollingUpdateDeploymentStrategyType {
		return nil
	}
	return proportional(d, running)
}

// saturated reports whether a ReplicaSet has all pods of the Deployment and all are available.
func saturated(d *apps.Deployment, rs *apps.ReplicaSet) bool {
	if rs == nil {
		return false
	}
	annotated, ok := numberAnnotation(rs, desiredAnnotation)
	return ok && replicas(rs) == desired(d) && annotated == desired(d) && available(rs) == desired(d)
}

// proportional distributes the replicas to add or remove over the ReplicaSets in proportion to
// their sizes. The largest gets the remainder.
func proportional(d *apps.Deployment, running []*apps.ReplicaSet) []scaling {
	surge, _ := limits(d)
	allowed := int32(0)
	if desired(d) > 0 {
		allowed = desired(d) + surge
	}
	add := allowed - total(running, replicas)
	sorted := slices.SortedFunc(slices.Values(running), func(a, b *apps.ReplicaSet) int {
		byAge := order.ByAge(a, b)
		if add > 0 {
			byAge = -byAge
		}
		return cmp.Or(cmp.Compare(replicas(b), replicas(a)), byAge)
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
		out[i] = scaling{rs, replicas(rs) + part}
	}
	if len(out) > 0 {
		out[0].to = max(0, out[0].to+add-added)
	}
	if add < 0 {
		keepAvailable(d, out)
	}
	return out
}

// keepAvailable changes the sizes of a scale-down, but not their sum, so that as many available
// pods remain as the Deployment needs. Otherwise, unavailable pods might remain instead.
func keepAvailable(d *apps.Deployment, scalings []scaling) {
	_, unavailable := limits(d)
	missing, moved := desired(d)-unavailable, int32(0)
	for _, s := range scalings {
		missing -= min(availableAfterScaleDown(s.rs), s.to)
	}
	for i, s := range scalings {
		if n := min(missing, availableAfterScaleDown(s.rs)-s.to); n > 0 {
			scalings[i].to += n
			missing -= n
			moved += n
		}
	}
	for i, s := range scalings {
		if n := min(moved, s.to-availableAfterScaleDown(s.rs)); n > 0 {
			scalings[i].to -= n
			moved -= n
		}
	}
}

// share returns the change of a ReplicaSet's size that keeps its proportion. The previous total
// is in its annotation.
func share(rs *apps.ReplicaSet, d *apps.Deployment, allowed int32) int32 {
	if desired(d) == 0 {
		return -replicas(rs)
	}
	before, ok := numberAnnotation(rs, maxAnnotation)
	if !ok || before == 0 {
		before = d.Status.Replicas
	}
	if before == 0 {
		return 0
	}
	whole := math.Round(float64(replicas(rs)) * float64(allowed) / float64(before))
	return int32(max(0, min(whole, math.MaxInt32))) - replicas(rs)
}

// needsRescale reports whether a Deployment was scaled after its ReplicaSets were last scaled.
func needsRescale(d *apps.Deployment, s sets) bool {
	return slices.ContainsFunc(active(s.all()), func(rs *apps.ReplicaSet) bool {
		annotated, ok := numberAnnotation(rs, desiredAnnotation)
		return ok && annotated != desired(d)
	})
}

// expired returns the empty old ReplicaSets above the history limit, those with the oldest
// revisions.
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
		return cmp.Or(cmp.Compare(revision(a), revision(b)), order.ByAge(a, b))
	})
	return slices.DeleteFunc(alive[:extra], func(rs *apps.ReplicaSet) bool {
		return rs.Status.Replicas != 0 || replicas(rs) != 0 || rs.Generation > rs.Status.ObservedGeneration
	})
}
