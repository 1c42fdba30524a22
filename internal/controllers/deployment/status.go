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

// setCondition puts a condition in unless one of the same status and reason
// is there. The transition time is kept if the status is the same.
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
		dropCondition(s, c.Type)
	}
	s.Conditions = append(s.Conditions, c)
}

func dropCondition(s *apps.DeploymentStatus, t apps.DeploymentConditionType) {
	s.Conditions = slices.DeleteFunc(s.Conditions, func(c apps.DeploymentCondition) bool { return c.Type == t })
}

// hasDeadline reports whether a Deployment's progress is watched.
func hasDeadline(d *apps.Deployment) bool {
	return d.Spec.ProgressDeadlineSeconds != nil && *d.Spec.ProgressDeadlineSeconds != 1<<31-1
}

// summarize works out the numbers of a status and the condition Available.
func summarize(d *apps.Deployment, s sets, now time.Time) apps.DeploymentStatus {
	all := s.all()
	status := *d.Status.DeepCopy()
	status.ObservedGeneration = d.Generation
	status.Replicas = total(all, func(rs *apps.ReplicaSet) int32 { return rs.Status.Replicas })
	status.ReadyReplicas = total(all, func(rs *apps.ReplicaSet) int32 { return rs.Status.ReadyReplicas })
	status.AvailableReplicas = total(all, available)
	status.UnavailableReplicas = max(0, total(all, size)-status.AvailableReplicas)
	status.UpdatedReplicas = 0
	if s.current != nil {
		status.UpdatedReplicas = s.current.Status.Replicas
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
	if status.AvailableReplicas >= wanted(d)-unavailable {
		setCondition(&status, apps.DeploymentCondition{Type: apps.DeploymentAvailable, Status: v1.ConditionTrue,
			Reason: reasonAvailable, Message: "Deployment has minimum availability."}, now)
	} else {
		setCondition(&status, apps.DeploymentCondition{Type: apps.DeploymentAvailable, Status: v1.ConditionFalse,
			Reason: reasonUnavailable, Message: "Deployment does not have minimum availability."}, now)
	}
	return status
}

// complete reports whether all of a Deployment's pods are of its present
// template and available.
func complete(d *apps.Deployment, s *apps.DeploymentStatus) bool {
	return s.UpdatedReplicas == wanted(d) && s.Replicas == wanted(d) && s.AvailableReplicas == wanted(d) &&
		s.ObservedGeneration >= d.Generation
}

// progressed reports whether a status is closer to complete than the last.
func progressed(before, after *apps.DeploymentStatus) bool {
	return after.UpdatedReplicas > before.UpdatedReplicas ||
		after.Replicas-after.UpdatedReplicas < before.Replicas-before.UpdatedReplicas ||
		after.ReadyReplicas > before.ReadyReplicas ||
		after.AvailableReplicas > before.AvailableReplicas
}

// timedOut reports whether nothing has progressed for the deadline. A roll-out
// that was complete does not time out, one that has timed out stays so.
func timedOut(d *apps.Deployment, now time.Time) bool {
	c := condition(&d.Status, apps.DeploymentProgressing)
	if c == nil || !hasDeadline(d) || c.Reason == reasonReplicaSetComplete {
		return false
	}
	return c.Reason == reasonTimedOut || deadline(d, c).Before(now)
}

func deadline(d *apps.Deployment, c *apps.DeploymentCondition) time.Time {
	return c.LastUpdateTime.Add(time.Duration(*d.Spec.ProgressDeadlineSeconds) * time.Second)
}

// rolloutStatus is the status during a roll-out, with the conditions
// Progressing and ReplicaFailure. recheck is how long from now the deadline
// has to be looked at again; 0 if not at all.
func rolloutStatus(d *apps.Deployment, s sets, now time.Time) (status apps.DeploymentStatus, recheck time.Duration) {
	status = summarize(d, s, now)
	subject := fmt.Sprintf("Deployment %q", d.Name)
	if s.current != nil {
		subject = fmt.Sprintf("ReplicaSet %q", s.current.Name)
	}
	progressing := apps.DeploymentCondition{Type: apps.DeploymentProgressing, Status: v1.ConditionTrue}
	have := condition(&d.Status, apps.DeploymentProgressing)
	done := status.Replicas == status.UpdatedReplicas && have != nil && have.Reason == reasonReplicaSetComplete
	switch {
	case !hasDeadline(d):
		dropCondition(&status, apps.DeploymentProgressing)
	case done:
	case complete(d, &status):
		progressing.Reason, progressing.Message = reasonReplicaSetComplete, subject+" has successfully progressed."
		setCondition(&status, progressing, now)
	case progressed(&d.Status, &status):
		progressing.Reason, progressing.Message = reasonReplicaSetUpdated, subject+" is progressing."
		if have != nil {
			// Each step of progress starts the deadline anew.
			dropCondition(&status, apps.DeploymentProgressing)
		}
		setCondition(&status, progressing, now)
		if have != nil && have.Status == v1.ConditionTrue {
			condition(&status, apps.DeploymentProgressing).LastTransitionTime = have.LastTransitionTime
		}
	case timedOut(d, now):
		progressing.Status = v1.ConditionFalse
		progressing.Reason, progressing.Message = reasonTimedOut, subject+" has timed out progressing."
		setCondition(&status, progressing, now)
	}
	setFailure(&status, s, now)
	if c := condition(&status, apps.DeploymentProgressing); hasDeadline(d) && c != nil &&
		c.Reason != reasonTimedOut && !complete(d, &status) && c.Reason != reasonReplicaSetComplete {
		recheck = max(time.Second, deadline(d, c).Sub(now)+time.Second)
	}
	return status, recheck
}

// setFailure copies the condition ReplicaFailure from the current ReplicaSet,
// or else from any other.
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
	dropCondition(status, apps.DeploymentReplicaFailure)
}

// notePause sets Progressing to Unknown when a Deployment is paused and when
// it is resumed, so that the time in between does not count.
func notePause(d *apps.Deployment, now time.Time) {
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
