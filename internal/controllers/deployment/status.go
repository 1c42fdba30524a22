package deployment

import (
	"fmt"
	"slices"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of a Deployment's conditions and events.
const (
	reasonReplicaSetUpdated  = "ReplicaSetUpdated"
	reasonReplicaSetFailed   = "ReplicaSetCreateError"
	reasonReplicaSetCreated  = "NewReplicaSetCreated"
	reasonReplicaSetFound    = "FoundNewReplicaSet"
	reasonReplicaSetComplete = "NewReplicaSetAvailable"
	reasonTimedOut           = "ProgressDeadlineExceeded"
	reasonPaused             = "DeploymentPaused"
	reasonResumed            = "DeploymentResumed"
	reasonAvailable          = "MinimumReplicasAvailable"
	reasonUnavailable        = "MinimumReplicasUnavailable"
)

func condition(s *apps.DeploymentStatus, t apps.DeploymentConditionType) *apps.DeploymentCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == t {
			return &s.Conditions[i]
		}
	}
	return nil
}

// setCondition sets a condition unless there is one with the same status and reason. It keeps
// the transition time if the status is the same.
func setCondition(s *apps.DeploymentStatus, c apps.DeploymentCondition, now time.Time) {
	c.LastUpdateTime = metav1.NewTime(now)
	c.LastTransitionTime = metav1.NewTime(now)
	if have := condition(s, c.Type); have != nil {
		if have.Status == c.Status && have.Reason == c.Reason {
			return
		}
		if have.Status == c.Status {
			c.LastTransitionTime = have.LastTransitionTime
		}
		removeCondition(s, c.Type)
	}
	s.Conditions = append(s.Conditions, c)
}

func removeCondition(s *apps.DeploymentStatus, t apps.DeploymentConditionType) {
	s.Conditions = slices.DeleteFunc(s.Conditions, func(c apps.DeploymentCondition) bool { return c.Type == t })
}

// hasDeadline reports whether a Deployment has a progress deadline.
func hasDeadline(d *apps.Deployment) bool {
	return d.Spec.ProgressDeadlineSeconds != nil && *d.Spec.ProgressDeadlineSeconds != 1<<31-1
}

// summarize returns the status with updated numbers and condition Available.
func summarize(d *apps.Deployment, s sets, now time.Time) apps.DeploymentStatus {
	all := s.all()
	status := *d.Status.DeepCopy()
	status.ObservedGeneration = d.Generation
	status.Replicas = total(all, func(rs *apps.ReplicaSet) int32 { return rs.Status.Replicas })
	status.ReadyReplicas = total(all, func(rs *apps.ReplicaSet) int32 { return rs.Status.ReadyReplicas })
	status.AvailableReplicas = total(all, available)
	status.UnavailableReplicas = max(0, total(all, replicas)-status.AvailableReplicas)
	status.UpdatedReplicas = 0
	if s.newRS != nil {
		status.UpdatedReplicas = s.newRS.Status.Replicas
	}
	terminating, known := int32(0), true
	for _, rs := range all {
		if rs.Status.TerminatingReplicas == nil {
			known = false
			break
		}
		terminating += *rs.Status.TerminatingReplicas
	}
	status.TerminatingReplicas = nil
	if known {
		status.TerminatingReplicas = &terminating
	}
	_, unavailable := limits(d)
	if status.AvailableReplicas >= desired(d)-unavailable {
		setCondition(&status, apps.DeploymentCondition{Type: apps.DeploymentAvailable, Status: v1.ConditionTrue,
			Reason: reasonAvailable, Message: "Deployment has minimum availability."}, now)
	} else {
		setCondition(&status, apps.DeploymentCondition{Type: apps.DeploymentAvailable, Status: v1.ConditionFalse,
			Reason: reasonUnavailable, Message: "Deployment does not have minimum availability."}, now)
	}
	return status
}

// complete reports whether all pods of a Deployment have its template and are
// available.
func complete(d *apps.Deployment, s *apps.DeploymentStatus) bool {
	return s.UpdatedReplicas == desired(d) && s.Replicas == desired(d) && s.AvailableReplicas == desired(d) &&
		s.ObservedGeneration >= d.Generation
}

// progressed reports whether after is closer to completion than before.
func progressed(before, after *apps.DeploymentStatus) bool {
	return after.UpdatedReplicas > before.UpdatedReplicas ||
		after.Replicas-after.UpdatedReplicas < before.Replicas-before.UpdatedReplicas ||
		after.ReadyReplicas > before.ReadyReplicas ||
		after.AvailableReplicas > before.AvailableReplicas
}

// timedOut reports whether the progress deadline is exceeded. A roll-out that was complete does
// not time out. A rollout that has timed out remains timed out until it progresses. moment
// returns when the time in a condition was; see wallclock.Moments.
func timedOut(d *apps.Deployment, moment func(time.Time) time.Time, now time.Time) bool {
	c := condition(&d.Status, apps.DeploymentProgressing)
	if c == nil || !hasDeadline(d) || c.Reason == reasonReplicaSetComplete {
		return false
	}
	return c.Reason == reasonTimedOut || deadline(d, moment(c.LastUpdateTime.Time)).Before(now)
}

// deadline returns until when a Deployment must progress again.
func deadline(d *apps.Deployment, progressed time.Time) time.Time {
	return progressed.Add(time.Duration(*d.Spec.ProgressDeadlineSeconds) * time.Second)
}

// rolloutStatus returns the status during a roll-out, with the conditions Progressing and
// ReplicaFailure. moment is that of timedOut. requeueAfter is the time until the deadline must be
// checked again, or 0.
func rolloutStatus(d *apps.Deployment, s sets, moment func(time.Time) time.Time, now time.Time) (status apps.DeploymentStatus, requeueAfter time.Duration) {
	status = summarize(d, s, now)
	subject := fmt.Sprintf("Deployment %q", d.Name)
	if s.newRS != nil {
		subject = fmt.Sprintf("ReplicaSet %q", s.newRS.Name)
	}
	progressing := apps.DeploymentCondition{Type: apps.DeploymentProgressing, Status: v1.ConditionTrue}
	have := condition(&d.Status, apps.DeploymentProgressing)
	done := status.Replicas == status.UpdatedReplicas && have != nil && have.Reason == reasonReplicaSetComplete
	switch {
	case !hasDeadline(d):
		removeCondition(&status, apps.DeploymentProgressing)
	case done:
	case complete(d, &status):
		progressing.Reason, progressing.Message = reasonReplicaSetComplete, subject+" has successfully progressed."
		setCondition(&status, progressing, now)
	case progressed(&d.Status, &status):
		progressing.Reason, progressing.Message = reasonReplicaSetUpdated, subject+" is progressing."
		if have != nil {
			// Any progress restarts the deadline.
			removeCondition(&status, apps.DeploymentProgressing)
		}
		setCondition(&status, progressing, now)
		if have != nil && have.Status == v1.ConditionTrue {
			condition(&status, apps.DeploymentProgressing).LastTransitionTime = have.LastTransitionTime
		}
	case timedOut(d, moment, now):
		progressing.Status = v1.ConditionFalse
		progressing.Reason, progressing.Message = reasonTimedOut, subject+" has timed out progressing."
		setCondition(&status, progressing, now)
	}
	setFailure(&status, s, now)
	if c := condition(&status, apps.DeploymentProgressing); hasDeadline(d) && c != nil &&
		c.Reason != reasonTimedOut && !complete(d, &status) && c.Reason != reasonReplicaSetComplete {
		requeueAfter = max(time.Second, deadline(d, moment(c.LastUpdateTime.Time)).Sub(now)+time.Second)
	}
	return status, requeueAfter
}

// setFailure copies the condition ReplicaFailure from the new ReplicaSet, or from another
// one if the new one does not have it.
func setFailure(status *apps.DeploymentStatus, s sets, now time.Time) {
	candidates := s.all()
	slices.Reverse(candidates)
	for _, rs := range candidates {
		for _, c := range rs.Status.Conditions {
			if c.Type == apps.ReplicaSetReplicaFailure && c.Status == v1.ConditionTrue {
				setCondition(status, apps.DeploymentCondition{
					Type: apps.DeploymentReplicaFailure, Status: c.Status, Reason: c.Reason, Message: c.Message,
				}, now)
				return
			}
		}
	}
	removeCondition(status, apps.DeploymentReplicaFailure)
}

// setPaused sets Progressing to Unknown when a Deployment is paused or resumed, so that the
// paused time does not count for the deadline.
func setPaused(d *apps.Deployment, now time.Time) {
	have := condition(&d.Status, apps.DeploymentProgressing)
	if !hasDeadline(d) || have != nil && have.Reason == reasonTimedOut {
		return
	}
	paused := have != nil && have.Reason == reasonPaused
	c := apps.DeploymentCondition{Type: apps.DeploymentProgressing, Status: v1.ConditionUnknown}
	switch {
	case d.Spec.Paused && !paused:
		c.Reason, c.Message = reasonPaused, "Deployment is paused"
	case !d.Spec.Paused && paused:
		c.Reason, c.Message = reasonResumed, "Deployment is resumed"
	default:
		return
	}
	setCondition(&d.Status, c, now)
}
