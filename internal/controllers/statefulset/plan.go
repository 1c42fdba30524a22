package statefulset

import (
	"cmp"
	"slices"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coracle-io/coracle/internal/controller/pods"
	"github.com/coracle-io/coracle/internal/podquery"
)

// snapshot is the input of plan.
type snapshot struct {
	set                             *apps.StatefulSet
	pods                            []*v1.Pod // owned by the set
	currentRevision, updateRevision string    // names of ControllerRevisions
	now                             time.Time
	since                           pods.Since // when the pods became ready
}

// step is the output of plan: the changes to make now.
type step struct {
	create []replica
	delete []*v1.Pod
	// repair lists the pods whose identity must be corrected.
	repair []replica
	// pending lists the pods that wait for a node or for their volumes. Missing claims
	// of them must be created again.
	pending []replica
	// wait is the time until the next pod becomes available without an event,
	// or 0 if there is no such pod.
	wait time.Duration
}

// replica is an ordinal, the revision that its pod should have, and the pod, or
// nil if it does not exist.
type replica struct {
	ordinal  int
	revision string
	pod      *v1.Pod
}

// plan decides the next step. With the pod management policy OrderedReady, it
// handles one pod at a time: it creates pods in ascending and deletes or updates
// them in descending order of their ordinals, and waits until the previous pod
// is available or gone. It also stops scaling down while the next pod to delete
// and another condemned pod are both unhealthy. With the policy Parallel, it
// creates and deletes all pods at once, but still updates them in order.
func plan(s snapshot) (out step) {
	out.wait = s.nextAvailable()
	if s.set.DeletionTimestamp != nil {
		return out
	}
	ordered := s.set.Spec.PodManagementPolicy != apps.ParallelPodManagement
	replicas, missing, condemned := s.replicas()
	for _, r := range replicas {
		if healthy := s.reconcile(r, &out); !healthy && ordered {
			return out
		}
	}
	if len(condemned) > 0 && ordered {
		if pod := condemned[0]; pod.DeletionTimestamp == nil && s.mayDelete(pod, condemned) {
			out.delete = append(out.delete, pod)
		}
		return out
	}
	for _, pod := range condemned {
		if pod.DeletionTimestamp == nil {
			out.delete = append(out.delete, pod)
		}
	}
	if s.set.Spec.UpdateStrategy.Type == apps.OnDeleteStatefulSetStrategyType {
		return out
	}
	s.update(replicas, missing, &out)
	return out
}

// replicas returns the replicas of the set in ascending order, the number of
// replicas without a pod, and the condemned pods, whose ordinals are out of
// range, in descending order. Of the replicas without a pod it returns only the
// first burst: their total number comes from spec.replicas and may be larger
// than memory.
func (s snapshot) replicas() (all []replica, missing int, condemned []*v1.Pod) {
	first, n := start(s.set), replicaCount(s.set)
	var existing []replica
	for _, pod := range s.pods {
		switch ordinal, ok := ordinalOf(s.set, pod); {
		case !ok:
		case ordinal >= first && ordinal < first+n:
			existing = append(existing, replica{ordinal: ordinal, revision: s.revisionFor(ordinal), pod: pod})
		default:
			condemned = append(condemned, pod)
		}
	}
	slices.SortFunc(existing, func(a, b replica) int { return cmp.Compare(a.ordinal, b.ordinal) })
	slices.SortFunc(condemned, func(a, b *v1.Pod) int {
		x, _ := ordinalOf(s.set, a)
		y, _ := ordinalOf(s.set, b)
		return cmp.Compare(y, x)
	})
	next, remaining := first, burst
	addMissing := func(end int) {
		for ; next < end && remaining > 0; next++ {
			all = append(all, replica{ordinal: next, revision: s.revisionFor(next)})
			remaining--
		}
	}
	for _, r := range existing {
		addMissing(r.ordinal)
		all = append(all, r)
		next = r.ordinal + 1
	}
	addMissing(first + n)
	return all, n - len(existing), condemned
}

// partition returns the number of pods, from the lowest ordinal, that a rolling
// update does not change.
func partition(set *apps.StatefulSet) int {
	if r := set.Spec.UpdateStrategy.RollingUpdate; r != nil && r.Partition != nil {
		return int(*r.Partition)
	}
	return 0
}

// revisionFor returns the revision for a new pod: the current one below the
// partition or if a rolling update has not reached the ordinal yet, otherwise
// the update revision.
func (s snapshot) revisionFor(ordinal int) string {
	rolling := s.set.Spec.UpdateStrategy.Type != apps.OnDeleteStatefulSetStrategyType
	noPartition := s.set.Spec.UpdateStrategy.RollingUpdate == nil || s.set.Spec.UpdateStrategy.RollingUpdate.Partition == nil
	at := ordinal - start(s.set)
	if rolling && (noPartition && at < int(s.set.Status.CurrentReplicas) || !noPartition && at < partition(s.set)) {
		return s.currentRevision
	}
	return s.updateRevision
}

// reconcile adds to out what a replica needs and reports whether its pod is
// healthy.
func (s snapshot) reconcile(r replica, out *step) (healthy bool) {
	pod := r.pod
	switch {
	case pod == nil:
		out.create = append(out.create, r)
		return false
	case podquery.IsFinished(pod):
		if pod.DeletionTimestamp == nil {
			out.delete = append(out.delete, pod)
		}
		return false
	case pod.DeletionTimestamp != nil:
		return false
	}
	if !identityMatches(s.set, pod, r.ordinal) {
		out.repair = append(out.repair, r)
	}
	if pod.Status.Phase == v1.PodPending {
		out.pending = append(out.pending, r)
	}
	return s.available(pod)
}

// available reports whether a pod is running and available.
func (s snapshot) available(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodRunning && s.since.IsAvailable(pod, s.set.Spec.MinReadySeconds, s.now)
}

// nextAvailable returns the time until the next pod becomes available without an
// event, or 0 if there is no such pod. The status counts it then, also if the step
// does not depend on it.
func (s snapshot) nextAvailable() (next time.Duration) {
	for _, pod := range s.pods {
		wait, ready := s.since.AvailableIn(pod, s.set.Spec.MinReadySeconds, s.now)
		if ready && wait > 0 && pod.Status.Phase == v1.PodRunning && (next == 0 || wait < next) {
			next = wait
		}
	}
	return next
}

// mayDelete reports whether a condemned pod may be deleted, which is the case if
// it is available or all other condemned pods are healthy.
func (s snapshot) mayDelete(pod *v1.Pod, condemned []*v1.Pod) bool {
	if s.available(pod) {
		return true
	}
	return !slices.ContainsFunc(condemned, func(other *v1.Pod) bool {
		return other != pod && (other.Status.Phase != v1.PodRunning || !podquery.IsReady(other) || other.DeletionTimestamp != nil)
	})
}

// maxUnavailable returns how many pods of a set may be unavailable during an update: at least one, and
// percentages are rounded down, as upstream does although the API's documentation says up.
func maxUnavailable(set *apps.StatefulSet) int {
	r := set.Spec.UpdateStrategy.RollingUpdate
	if r == nil || r.MaxUnavailable == nil {
		return 1
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(r.MaxUnavailable, replicaCount(set), false)
	if err != nil {
		return 1
	}
	return max(1, n)
}

// update adds pods of outdated revisions to out.delete: first those that are
// unavailable anyway, then others in descending order of their ordinals, while
// at most maxUnavailable pods are unavailable or missing.
func (s snapshot) update(replicas []replica, missing int, out *step) {
	budget := maxUnavailable(s.set) - missing
	for _, r := range replicas {
		if r.pod == nil {
			continue
		}
		if r.pod.DeletionTimestamp != nil || !s.since.IsAvailable(r.pod, s.set.Spec.MinReadySeconds, s.now) {
			budget--
		}
	}
	deleting := map[string]bool{}
	for _, p := range out.delete {
		deleting[p.Name] = true
	}
	var available []*v1.Pod
	for _, r := range slices.Backward(replicas) {
		if r.ordinal-start(s.set) < partition(s.set) {
			break
		}
		pod := r.pod
		switch {
		case pod == nil, pod.DeletionTimestamp != nil, deleting[pod.Name],
			pod.Labels[apps.ControllerRevisionHashLabelKey] == s.updateRevision:
		case s.since.IsAvailable(pod, s.set.Spec.MinReadySeconds, s.now):
			available = append(available, pod)
		default:
			out.delete = append(out.delete, pod)
		}
	}
	out.delete = append(out.delete, available[:min(len(available), max(0, budget))]...)
}

// status computes the status of a set from its pods.
func status(s snapshot, collisions *int32) apps.StatefulSetStatus {
	st := apps.StatefulSetStatus{
		ObservedGeneration: s.set.Generation,
		CurrentRevision:    s.currentRevision,
		UpdateRevision:     s.updateRevision,
		CollisionCount:     collisions,
		Conditions:         s.set.Status.Conditions,
	}
	for _, p := range s.pods {
		if _, ok := ordinalOf(s.set, p); !ok {
			continue
		}
		st.Replicas++
		if podquery.IsReady(p) && p.Status.Phase == v1.PodRunning {
			st.ReadyReplicas++
			if s.since.IsAvailable(p, s.set.Spec.MinReadySeconds, s.now) {
				st.AvailableReplicas++
			}
		}
		if p.DeletionTimestamp != nil {
			continue
		}
		switch p.Labels[apps.ControllerRevisionHashLabelKey] {
		case s.updateRevision:
			st.UpdatedReplicas++
			if s.updateRevision == s.currentRevision {
				st.CurrentReplicas++
			}
		case s.currentRevision:
			st.CurrentReplicas++
		}
	}
	// An update is complete once it has reached every pod, by the controller or by whoever
	// deletes the pods. Its revision then becomes the current one.
	if st.UpdatedReplicas == st.Replicas && st.ReadyReplicas == st.Replicas && int(st.Replicas) == replicaCount(s.set) {
		st.CurrentReplicas = st.UpdatedReplicas
		st.CurrentRevision = s.updateRevision
	}
	return st
}
