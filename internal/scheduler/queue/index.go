package queue

import (
	"iter"
	"maps"

	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// rejectedPods are the waiting pods that a plugin rejected, by the keys that its
// index gives them. Without an index they all have the key "".
type rejectedPods struct {
	index *framework.PodIndex // nil: none
	byKey map[string]podSet
	count int
}

type podSet map[types.UID]*QueuedPodInfo

// rejection is a pod's place in rejectedPods.
type rejection struct {
	by  pluginKey
	key string
}

// indexOf returns the index that all hints of a plugin share. It is nil if they
// share none: one key cannot stand for what they read of a pod then.
func indexOf(hints []framework.ClusterEventWithHint) *framework.PodIndex {
	for i := range hints {
		if hints[i].Index != hints[0].Index {
			return nil
		}
	}
	if len(hints) == 0 {
		return nil
	}
	return hints[0].Index
}

// enterIndex notes which plugins rejected a pod that waits for events.
func (q *Queue) enterIndex(it *QueuedPodInfo) {
	if it.place != unschedulable && it.place != gated {
		return
	}
	for _, plugin := range it.rejectors() {
		r := rejection{by: pluginKey{it.Pod.Spec.SchedulerName, plugin}}
		all := q.rejected[r.by]
		if all == nil {
			all = &rejectedPods{index: indexOf(q.hints[r.by]), byKey: map[string]podSet{}}
			q.rejected[r.by] = all
		}
		if all.index != nil {
			r.key = all.index.OfPod(it.PodInfo)
		}
		if all.enter(r.key, it) {
			it.rejections = append(it.rejections, r)
		}
	}
}

// leaveIndex undoes enterIndex.
func (q *Queue) leaveIndex(it *QueuedPodInfo) {
	for _, r := range it.rejections {
		if all := q.rejected[r.by]; all.leave(r.key, it) == 0 {
			delete(q.rejected, r.by)
		}
	}
	it.rejections = it.rejections[:0]
}

// enter returns false if the pod is there already: a plugin may have rejected it
// for two reasons.
func (r *rejectedPods) enter(key string, it *QueuedPodInfo) bool {
	pods := r.byKey[key]
	if pods == nil {
		pods = podSet{}
		r.byKey[key] = pods
	}
	if pods[it.Pod.UID] != nil {
		return false
	}
	pods[it.Pod.UID] = it
	r.count++
	return true
}

// leave returns how many pods are left.
func (r *rejectedPods) leave(key string, it *QueuedPodInfo) int {
	pods := r.byKey[key]
	if delete(pods, it.Pod.UID); len(pods) == 0 {
		delete(r.byKey, key)
	}
	r.count--
	return r.count
}

// about yields the pods that an event may be about, by key.
func (r *rejectedPods) about(old, new any) iter.Seq[podSet] {
	if r.index != nil && r.index.OfEvent != nil {
		if key, ok := r.index.OfEvent(old, new); ok {
			return func(yield func(podSet) bool) { yield(r.byKey[key]) }
		}
	}
	return maps.Values(r.byKey)
}
