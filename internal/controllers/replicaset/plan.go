package replicaset

import (
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/coracle-io/coracle/internal/controller/pods"
	"github.com/coracle-io/coracle/internal/controller/workload"
)

// burst is the most pods that one sync creates or deletes.
const burst = 500

// plan is what one sync does about a set's pods.
type plan struct {
	create  int
	victims []*v1.Pod
}

// decide compares a set with its active pods.
func decide(set *apps.ReplicaSet, active []*v1.Pod, colocated map[string]int, now time.Time) plan {
	missing := int(replicas(set)) - len(active)
	switch {
	case missing > 0:
		return plan{create: min(missing, burst)}
	case missing < 0:
		return plan{victims: pods.Victims(active, min(-missing, burst), colocated, now)}
	}
	return plan{}
}

func replicas(set *apps.ReplicaSet) int32 {
	if set.Spec.Replicas == nil {
		return 1
	}
	return *set.Spec.Replicas
}

// observation is what a sync saw and did.
type observation struct {
	active []*v1.Pod
	// terminating counts the pods being deleted; nil for a kind whose status
	// does not tell.
	terminating *int
	// missing is how many pods there were too few (or, negative, too many),
	// failed the error of creating or deleting them.
	missing int
	failed  error
}

// status works out a set's status. next is how long it takes until a pod that
// is ready now becomes available; 0 if there is none.
func status(set *apps.ReplicaSet, seen observation, now time.Time) (s apps.ReplicaSetStatus, next time.Duration) {
	s = *set.Status.DeepCopy()
	s.Replicas = int32(len(seen.active))
	s.FullyLabeledReplicas, s.ReadyReplicas, s.AvailableReplicas = 0, 0, 0
	template := labels.SelectorFromSet(set.Spec.Template.Labels)
	for _, p := range seen.active {
		if template.Matches(labels.Set(p.Labels)) {
			s.FullyLabeledReplicas++
		}
		wait, ready := pods.AvailableIn(p, set.Spec.MinReadySeconds, now)
		if !ready {
			continue
		}
		s.ReadyReplicas++
		if wait == 0 {
			s.AvailableReplicas++
		} else if next == 0 || wait < next {
			next = wait
		}
	}
	if seen.terminating != nil {
		n := int32(*seen.terminating)
		s.TerminatingReplicas = &n
	}
	s.ObservedGeneration = max(s.ObservedGeneration, set.Generation)
	setFailure(&s, seen, now)
	return s, next
}

// setFailure sets or removes the condition ReplicaFailure.
func setFailure(s *apps.ReplicaSetStatus, seen observation, now time.Time) {
	at := -1
	for i, c := range s.Conditions {
		if c.Type == apps.ReplicaSetReplicaFailure {
			at = i
		}
	}
	switch {
	case seen.failed == nil && at >= 0:
		s.Conditions = append(s.Conditions[:at:at], s.Conditions[at+1:]...)
	case seen.failed != nil && at < 0:
		reason := workload.FailedCreate
		if seen.missing < 0 {
			reason = workload.FailedDelete
		}
		s.Conditions = append(s.Conditions, apps.ReplicaSetCondition{
			Type:               apps.ReplicaSetReplicaFailure,
			Status:             v1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(now),
			Reason:             reason,
			Message:            seen.failed.Error(),
		})
	}
}
