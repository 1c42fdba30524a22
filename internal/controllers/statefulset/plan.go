package statefulset

import (
	"cmp"
	"slices"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coracle-io/coracle/internal/controller/pods"
	podutil "github.com/coracle-io/coracle/internal/pod"
)

// snapshot is all that a StatefulSet's next step depends on.
type snapshot struct {
	set             *apps.StatefulSet
	pods            []*v1.Pod // owned by the set
	current, update string    // names of the revisions
	now             time.Time
}

// step is what to do next.
type step struct {
	create []slot
	delete []*v1.Pod
	// repair are pods whose identity is not right.
	repair []slot
	// wait is how long until a pod becomes available without an event; 0 if
	// none does.
	wait time.Duration
}

// slot is an ordinal, the revision its pod should be made of, and the pod if
// there is one.
type slot struct {
	ordinal  int
	revision string
	pod      *v1.Pod
}

// plan decides the next step. With pod management policy OrderedReady one
// pod is handled at a time, from the lowest ordinal up when pods are made and
// from the highest down when they are deleted or updated; the next one waits
// until the one before is available, or gone. So scaling down waits too while
// the next pod to go and another below it are both unhealthy. With Parallel all
// are at once, updates aside.
func plan(s snapshot) (out step) {
	if s.set.DeletionTimestamp != nil {
		return out
	}
	ordered := s.set.Spec.PodManagementPolicy != apps.ParallelPodManagement
	slots, missing, condemned := s.arrange()
	for _, sl := range slots {
		done := s.fill(sl, &out)
		if !done && ordered {
			return out
		}
	}
	if len(condemned) > 0 && ordered {
		if pod := condemned[0]; pod.DeletionTimestamp == nil && s.mayGo(pod, condemned, &out) {
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
	s.replace(slots, missing, &out)
	return out
}

// arrange puts the pods into their slots, lowest ordinal first. Of the slots
// without a pod only the lowest are there, as many as one sync fills: how many
// are missing in all is a number that a user wrote, and may be larger than
// memory. condemned are the pods beyond the slots, highest first.
func (s snapshot) arrange() (slots []slot, missing int, condemned []*v1.Pod) {
	first, n := start(s.set), replicas(s.set)
	var held []slot
	for _, pod := range s.pods {
		switch ordinal, ok := ordinalOf(s.set, pod); {
		case !ok:
		case ordinal >= first && ordinal < first+n:
			held = append(held, slot{ordinal: ordinal, revision: s.revisionFor(ordinal), pod: pod})
		default:
			condemned = append(condemned, pod)
		}
	}
	slices.SortFunc(held, func(a, b slot) int { return cmp.Compare(a.ordinal, b.ordinal) })
	slices.SortFunc(condemned, func(a, b *v1.Pod) int {
		x, _ := ordinalOf(s.set, a)
		y, _ := ordinalOf(s.set, b)
		return cmp.Compare(y, x)
	})
	next, free := first, burst
	fillTo := func(end int) {
		for ; next < end && free > 0; next++ {
			slots = append(slots, slot{ordinal: next, revision: s.revisionFor(next)})
			free--
		}
	}
	for _, sl := range held {
		fillTo(sl.ordinal)
		slots = append(slots, sl)
		next = sl.ordinal + 1
	}
	fillTo(first + n)
	return slots, n - len(held), condemned
}

// partition is the number of pods, from the lowest ordinal, that an update
// leaves alone.
func partition(set *apps.StatefulSet) int {
	if r := set.Spec.UpdateStrategy.RollingUpdate; r != nil && r.Partition != nil {
		return int(*r.Partition)
	}
	return 0
}

// revisionFor is the revision that a new pod is made of: the present one
// below the partition, and while an update has not come down to it.
func (s snapshot) revisionFor(ordinal int) string {
	rolling := s.set.Spec.UpdateStrategy.Type != apps.OnDeleteStatefulSetStrategyType
	noPartition := s.set.Spec.UpdateStrategy.RollingUpdate == nil || s.set.Spec.UpdateStrategy.RollingUpdate.Partition == nil
	at := ordinal - start(s.set)
	if rolling && (noPartition && at < int(s.set.Status.CurrentReplicas) || !noPartition && at < partition(s.set)) {
		return s.current
	}
	return s.update
}

// fill makes a slot's pod what it should be and reports whether it is.
func (s snapshot) fill(sl slot, out *step) (done bool) {
	pod := sl.pod
	switch {
	case pod == nil:
		out.create = append(out.create, sl)
		return false
	case podutil.IsFinished(pod):
		if pod.DeletionTimestamp == nil {
			out.delete = append(out.delete, pod)
		}
		return false
	case pod.DeletionTimestamp != nil:
		return false
	}
	if !identified(s.set, pod, sl.ordinal) {
		out.repair = append(out.repair, sl)
	}
	return s.available(pod, out)
}

// available reports whether a pod runs and is available. For one that will be
// without an event, it notes how long that takes.
func (s snapshot) available(pod *v1.Pod, out *step) bool {
	wait, ready := pods.AvailableIn(pod, s.set.Spec.MinReadySeconds, s.now)
	if !ready || pod.Status.Phase != v1.PodRunning {
		return false
	}
	if wait > 0 && (out.wait == 0 || wait < out.wait) {
		out.wait = wait
	}
	return wait <= 0
}

// mayGo reports whether a condemned pod may be deleted: it is available, or no
// condemned pod below it is unhealthy.
func (s snapshot) mayGo(pod *v1.Pod, condemned []*v1.Pod, out *step) bool {
	if s.available(pod, out) {
		return true
	}
	return !slices.ContainsFunc(condemned, func(other *v1.Pod) bool {
		return other != pod && (other.Status.Phase != v1.PodRunning || !podutil.IsReady(other) || other.DeletionTimestamp != nil)
	})
}

// replace deletes pods of other revisions than the update's, highest ordinal
// first, as long as no more than maxUnavailable pods are not available, those
// that are missing among them.
func (s snapshot) replace(slots []slot, missing int, out *step) {
	budget := 1
	if r := s.set.Spec.UpdateStrategy.RollingUpdate; r != nil && r.MaxUnavailable != nil {
		if n, err := intstr.GetScaledValueFromIntOrPercent(r.MaxUnavailable, replicas(s.set), true); err == nil {
			budget = max(1, n)
		}
	}
	budget -= missing
	for _, sl := range slots {
		if sl.pod == nil {
			continue
		}
		if sl.pod.DeletionTimestamp != nil || !pods.IsAvailable(sl.pod, s.set.Spec.MinReadySeconds, s.now) {
			budget--
		}
	}
	deleting := map[string]bool{}
	for _, p := range out.delete {
		deleting[p.Name] = true
	}
	for _, sl := range slices.Backward(slots) {
		if sl.ordinal-start(s.set) < partition(s.set) {
			return
		}
		pod := sl.pod
		if pod == nil || pod.DeletionTimestamp != nil || deleting[pod.Name] {
			continue
		}
		available := pods.IsAvailable(pod, s.set.Spec.MinReadySeconds, s.now)
		if pod.Labels[apps.ControllerRevisionHashLabelKey] == s.update {
			continue
		}
		if available && budget <= 0 {
			return
		}
		out.delete = append(out.delete, pod)
		if available {
			budget--
		}
	}
}

// status works out a set's status from its pods.
func status(s snapshot, collisions *int32) apps.StatefulSetStatus {
	st := apps.StatefulSetStatus{
		ObservedGeneration: s.set.Generation,
		CurrentRevision:    s.current,
		UpdateRevision:     s.update,
		CollisionCount:     collisions,
		Conditions:         s.set.Status.Conditions,
	}
	for _, p := range s.pods {
		if _, ok := ordinalOf(s.set, p); !ok {
			continue
		}
		st.Replicas++
		if podutil.IsReady(p) && p.Status.Phase == v1.PodRunning {
			st.ReadyReplicas++
			if pods.IsAvailable(p, s.set.Spec.MinReadySeconds, s.now) {
				st.AvailableReplicas++
			}
		}
		if p.DeletionTimestamp != nil {
			continue
		}
		switch p.Labels[apps.ControllerRevisionHashLabelKey] {
		case s.update:
			st.UpdatedReplicas++
			if s.update == s.current {
				st.CurrentReplicas++
			}
		case s.current:
			st.CurrentReplicas++
		}
	}
	// A rolling update that has reached every pod is over: its revision is
	// the current one from now on.
	if s.set.Spec.UpdateStrategy.Type != apps.OnDeleteStatefulSetStrategyType && partition(s.set) == 0 &&
		st.UpdatedReplicas == st.Replicas && st.ReadyReplicas == st.Replicas && int(st.Replicas) == replicas(s.set) {
		st.CurrentReplicas = st.UpdatedReplicas
		st.CurrentRevision = s.update
	}
	return st
}
