// Package pods has what controllers of pods share: reading a pod's state,
// making pods from templates, choosing which to delete, and remembering what
// the cache does not show yet.
package pods

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IsActive reports whether a pod counts as a replica: it has neither finished
// nor is it being deleted.
func IsActive(p *v1.Pod) bool {
	return !IsFinished(p) && p.DeletionTimestamp == nil
}

// IsFinished reports whether all containers of a pod have ended for good.
func IsFinished(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
}

// IsTerminating reports whether a pod is being deleted and has not finished.
func IsTerminating(p *v1.Pod) bool {
	return !IsFinished(p) && p.DeletionTimestamp != nil
}

// Condition returns a pod's condition of one type, or nil.
func Condition(p *v1.Pod, t v1.PodConditionType) *v1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == t {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// IsReady reports whether a pod's Ready condition is true.
func IsReady(p *v1.Pod) bool {
	c := Condition(p, v1.PodReady)
	return c != nil && c.Status == v1.ConditionTrue
}

// ReadySince is when a pod became ready; zero if it is not ready.
func ReadySince(p *v1.Pod) metav1.Time {
	if c := Condition(p, v1.PodReady); c != nil && c.Status == v1.ConditionTrue {
		return c.LastTransitionTime
	}
	return metav1.Time{}
}

// AvailableIn says how long it takes, from now, until a pod has been ready
// for minReadySeconds: 0 if it is available already. ok is false if the pod
// is not ready.
func AvailableIn(p *v1.Pod, minReadySeconds int32, now time.Time) (wait time.Duration, ok bool) {
	if !IsReady(p) {
		return 0, false
	}
	if minReadySeconds == 0 {
		return 0, true
	}
	since := ReadySince(p)
	if since.IsZero() {
		return 0, false
	}
	return max(0, since.Add(time.Duration(minReadySeconds)*time.Second).Sub(now)), true
}

// IsAvailable reports whether a pod has been ready for minReadySeconds.
func IsAvailable(p *v1.Pod, minReadySeconds int32, now time.Time) bool {
	wait, ready := AvailableIn(p, minReadySeconds, now)
	return ready && wait == 0
}
