package replicaset

import (
	"slices"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/controller/pods"
	"github.com/coracle-io/coracle/internal/controller/workload"
)

// burst is the maximum number of pods that one sync creates or deletes.
const burst = 500

// plan is the number of pods to create, or the pods to delete.
type plan struct {
	create int
	delete []*v1.Pod
}

// decide compares a set with its active pods.
func decide(set *apps.ReplicaSet, active []*v1.Pod, order pods.DeletionOrder) plan {
	missing := int(replicas(set)) - len(active)
	switch {
	case missing > 0:
		return plan{create: min(missing, burst)}
	case missing < 0:
		return plan{delete: pods.SelectForDeletion(active, min(-missing, burst), order)}
	}
	return plan{}
}

func replicas(set *apps.ReplicaSet) int32 { return ptr.Deref(set.Spec.Replicas, 1) }

// observation is the input of status.
type observation struct {
	active []*v1.Pod
	// acted is true if the controller has created and deleted pods as the set requires. It
	// does not while the cache is stale.
	acted bool
	// terminating is the number of pods being deleted, or nil if the status of the kind
	// does not have it.
	terminating *int
	// missing is the desired minus the actual number of pods. failed is the error of
	// creating or deleting pods.
	missing int
	failed  error
	// kept are active pods whose deletion failed. They may be deleted all the same, so
	// they are not counted as ready.
	kept map[types.UID]bool
	// since holds when the active pods became ready.
	since pods.Since
}

// forget moves deleted pods from the active to the terminating ones, so that nobody relies on
// them. kept are those whose deletion failed.
func (o *observation) forget(deleted, kept []*v1.Pod) {
	gone := map[types.UID]bool{}
	for _, p := range deleted {
		gone[p.UID] = true
	}
	o.kept = map[types.UID]bool{}
	for _, p := range kept {
		o.kept[p.UID], gone[p.UID] = true, false
	}
	before := len(o.active)
	o.active = slices.DeleteFunc(slices.Clone(o.active), func(p *v1.Pod) bool { return gone[p.UID] })
	if o.terminating != nil {
		*o.terminating += before - len(o.active)
	}
}

// status computes the status of a set. next is the time until the next ready pod becomes
// available, or 0 if there is none.
func status(set *apps.ReplicaSet, seen observation, now time.Time) (s apps.ReplicaSetStatus, next time.Duration) {
	s = *set.Status.DeepCopy()
	s.Replicas = int32(len(seen.active))
	s.FullyLabeledReplicas, s.ReadyReplicas, s.AvailableReplicas = 0, 0, 0
	template := labels.SelectorFromSet(set.Spec.Template.Labels)
	for _, p := range seen.active {
		if template.Matches(labels.Set(p.Labels)) {
			s.FullyLabeledReplicas++
		}
		wait, ready := seen.since.AvailableIn(p, set.Spec.MinReadySeconds, now)
		if !ready || seen.kept[p.UID] {
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
	if seen.acted {
		s.ObservedGeneration = max(s.ObservedGeneration, set.Generation)
	}
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
