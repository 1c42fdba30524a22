package podquery

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IsFinished reports whether all containers of a pod have ended permanently.
func IsFinished(p *v1.Pod) bool { return Ended(p.Status.Phase) }

// Ended reports whether a phase is the last that a pod can be in.
func Ended(phase v1.PodPhase) bool { return phase == v1.PodSucceeded || phase == v1.PodFailed }

// IsActive reports whether a pod has not finished and is not being deleted, so
// that it counts as a replica.
func IsActive(p *v1.Pod) bool { return !IsFinished(p) && p.DeletionTimestamp == nil }

// IsTerminating reports whether a pod is being deleted and has not finished.
func IsTerminating(p *v1.Pod) bool { return !IsFinished(p) && p.DeletionTimestamp != nil }

// Condition returns the condition of one type, or nil if there is none. It
// points into the status.
func Condition(s *v1.PodStatus, t v1.PodConditionType) *v1.PodCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == t {
			return &s.Conditions[i]
		}
	}
	return nil
}

// HasCondition reports whether the condition of one type is true.
func HasCondition(s *v1.PodStatus, t v1.PodConditionType) bool {
	c := Condition(s, t)
	return c != nil && c.Status == v1.ConditionTrue
}

// IsReady reports whether a pod's Ready condition is true.
func IsReady(p *v1.Pod) bool { return HasCondition(&p.Status, v1.PodReady) }

// SetCondition replaces the condition of c's type, or appends c.
func SetCondition(s *v1.PodStatus, c v1.PodCondition) {
	if old := Condition(s, c.Type); old != nil {
		*old = c
		return
	}
	s.Conditions = append(s.Conditions, c)
}

// DisruptionTarget returns the condition that says why the control plane is about
// to delete p. Its time stays when p has the condition already, because it is
// the time of the transition.
func DisruptionTarget(p *v1.Pod, reason, message string, now metav1.Time) v1.PodCondition {
	c := v1.PodCondition{
		Type: v1.DisruptionTarget, Status: v1.ConditionTrue, ObservedGeneration: p.Generation,
		Reason: reason, Message: message, LastTransitionTime: now,
	}
	if old := Condition(&p.Status, c.Type); old != nil && old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	return c
}
