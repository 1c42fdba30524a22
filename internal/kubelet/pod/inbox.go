package pod

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/status"
	"github.com/coracle-io/coracle/internal/pace"
	"github.com/coracle-io/coracle/internal/podquery"
)

// request is the desired state of a worker's pod.
type request struct {
	pod      *v1.Pod
	removed  bool             // the source no longer has the pod
	failed   *status.Cause    // why the pod has to end as Failed
	rejected bool             // the node rejected the pod because of failed
	grace    *int64           // overrides the grace period of the pod, for evictions
	target   *v1.PodCondition // condition DisruptionTarget of an evicted pod
	ended    bool             // nothing of the pod runs or will run
	freed    bool             // what its containers wrote is removed
}

// ending reports whether the pod is to end.
func (r *request) ending() bool {
	return r.removed || r.failed != nil || r.pod.DeletionTimestamp != nil
}

// evicted is the reason of a pod that was evicted.
const evicted = "Evicted"

// evicted reports whether the pod was evicted, by this kubelet or an earlier one.
func (r *request) evicted() bool {
	if r.failed != nil {
		return r.failed.Reason == evicted
	}
	return r.pod.Status.Phase == v1.PodFailed && r.pod.Status.Reason == evicted
}

// inbox is how other goroutines change the request of a worker and wake it. Its
// methods may be called from any goroutine.
type inbox struct {
	static bool          // the pod comes from a manifest
	woken  chan struct{} // something may have changed
	probed chan struct{} // the result of a probe has changed, or what is worth a report during work
	gone   chan struct{} // closed when nothing of the pod runs any more

	mu        sync.Mutex // guards what follows
	asked     request
	allocated *allocation // nil: what the pod specifies
	shaped    shaped
	changed   bool // the pod or an object that it refers to has changed
	observed  *cri.Pod
	pending   *v1.PodCondition   // why a resize waits; nil if none does
	resizing  *v1.PodCondition   // a resize in progress, or failed; nil if there is none
	interrupt context.CancelFunc // cancels the work in progress
	killing   int64              // grace period of the kill in progress, -1 for none
	turns     pace.Pace          // of inTurn
	deferred  bool               // a call of inTurn waits
}

// A worker observes all containers of its pod whenever the result of a probe changes, the
// pod, such as its annotations and resources, or an object that it refers to. Its
// containers and its user can change them all the time. After a burst, the worker is woken
// once in each period.
const (
	wakeBurst  = 64
	wakePeriod = time.Second
)

// shaped is the last pod that active returned, and what it was made from.
type shaped struct {
	asked     *v1.Pod
	allocated *allocation
	pod       *v1.Pod
}

func newInbox(pod *v1.Pod) inbox {
	return inbox{woken: make(chan struct{}, 1), probed: make(chan struct{}, 1), gone: make(chan struct{}), asked: request{pod: pod}, allocated: initial(pod), pending: deferredBefore(pod), killing: -1}
}

// probeChanged wakes the worker after the result of a probe has changed. The
// worker reports it at once, also while it works on the pod, unless results change
// all the time.
func (b *inbox) probeChanged() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inTurn(func() {
		b.reportNow()
		b.wake()
	})
}

// inTurn calls wake now, or has the worker woken later if it is woken all the time. b.mu
// is held.
func (b *inbox) inTurn(wake func()) {
	if b.deferred {
		return
	}
	wait := b.turns.Take(time.Now(), wakeBurst, wakePeriod)
	if b.deferred = wait > 0; !b.deferred {
		wake()
		return
	}
	time.AfterFunc(wait, func() {
		b.mu.Lock()
		b.deferred = false
		b.mu.Unlock()
		b.probeChanged()
	})
}

// reportNow makes the worker report the status of the pod while it works on it.
func (b *inbox) reportNow() {
	select {
	case b.probed <- struct{}{}:
	default:
	}
}

func (b *inbox) wake() {
	select {
	case b.woken <- struct{}{}:
	default:
	}
}

// drain discards a wake-up.
func drain(c <-chan struct{}) {
	select {
	case <-c:
	default:
	}
}

// refresh wakes the worker after a change of an object that the pod refers to.
// The worker retries at once what failed before.
func (b *inbox) refresh() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changed = true
	b.inTurn(b.wake)
}

// takeChanged reports whether refresh was called or the pod changed since the
// last call.
func (b *inbox) takeChanged() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	changed := b.changed
	b.changed = false
	return changed
}

// update records a new version of the pod. It cancels the work in progress if
// the pod is deleted now, or is left less time than before.
func (b *inbox) update(pod *v1.Pod) {
	b.mu.Lock()
	if b.static {
		pod.Status = b.asked.pod.Status
	}
	b.changed = b.changed || b.asked.pod.Generation != pod.Generation
	urgent := isUrgent(b.asked.pod, pod)
	b.asked.pod = pod
	if status.IsReduced(pod) {
		b.allocated, b.shaped = nil, shaped{} // it holds nothing any more
	}
	b.interruptIfEnding()
	if urgent {
		b.wake()
	} else {
		b.inTurn(b.wake)
	}
	b.mu.Unlock()
}

// isUrgent reports whether a new version of a pod has another phase or deletion, which
// change a few times in the life of a pod.
func isUrgent(old, pod *v1.Pod) bool {
	return old.Status.Phase != pod.Status.Phase ||
		(old.DeletionTimestamp == nil) != (pod.DeletionTimestamp == nil) || !ptr.Equal(old.DeletionGracePeriodSeconds, pod.DeletionGracePeriodSeconds)
}

// remove records that the source no longer has the pod.
func (b *inbox) remove() {
	b.mu.Lock()
	b.asked.removed = true
	b.interruptIfEnding()
	b.mu.Unlock()
	b.wake()
}

// reject makes the pod end as Failed before it starts.
func (b *inbox) reject(cause status.Cause) {
	b.mu.Lock()
	b.asked.rejected, b.asked.failed = true, &cause
	b.allocated, b.shaped = nil, shaped{} // it holds nothing
	b.mu.Unlock()
}

// fail makes the pod end as Failed, within grace seconds if grace is not nil. If the
// pod is ending so already, it may get less time, and the first cause stays.
func (b *inbox) fail(cause status.Cause, grace *int64, target *v1.PodCondition) {
	b.mu.Lock()
	switch {
	case b.asked.failed == nil:
		b.asked.failed, b.asked.grace, b.asked.target = &cause, grace, target
	case grace != nil && (b.asked.grace == nil || *grace < *b.asked.grace):
		b.asked.grace = grace
	}
	b.interruptIfEnding()
	b.mu.Unlock()
	b.wake()
}

// end records that nothing of the pod runs any more.
func (b *inbox) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.asked.ended {
		b.asked.ended = true
		close(b.gone)
	}
}

// setFreed records that what the containers of the pod wrote is removed, and with it
// the containers.
func (b *inbox) setFreed(left *cri.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked.freed, b.observed = true, left
}

// interruptIfEnding cancels the work in progress if the pod is to end, unless
// it is being killed within no more time. b.mu is held.
func (b *inbox) interruptIfEnding() {
	if !b.asked.ending() || b.interrupt == nil {
		return
	}
	if b.killing < 0 || GracePeriod(b.asked.pod, b.asked.grace) < b.killing {
		b.interrupt()
	}
}

// interruptible returns a context that update, remove and fail can cancel.
// killing is the grace period of the kill that the context is for, -1 if it is
// not for a kill. The caller calls the returned function when the work is done.
func (b *inbox) interruptible(ctx context.Context, killing int64) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	b.mu.Lock()
	b.interrupt, b.killing = cancel, killing
	b.mu.Unlock()
	return ctx, func() {
		b.mu.Lock()
		b.interrupt, b.killing = nil, -1
		b.mu.Unlock()
		cancel()
	}
}

func (b *inbox) request() request {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked
}

// superseded reports whether the request has changed since it asked to run this
// version of the pod.
func (b *inbox) superseded(pod *v1.Pod) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked.pod != pod || b.asked.removed || b.asked.failed != nil || b.changed
}

// current returns the newest version of the pod.
func (b *inbox) current() *v1.Pod { return b.request().pod }

// active returns the pod with its allocated resources and whether it holds
// resources of the node. It returns the same pod until the request or the
// allocation changes.
func (b *inbox) active() (*v1.Pod, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := &b.asked
	rejected := r.failed != nil && r.pod.Status.StartTime == nil
	if b.shaped.asked != r.pod || b.shaped.allocated != b.allocated {
		b.shaped = shaped{r.pod, b.allocated, b.allocated.of(r.pod)}
	}
	return b.shaped.pod, !r.ended && !r.removed && !rejected && !podquery.IsFinished(r.pod)
}

// occupies reports whether something of the pod may run: the node has not
// rejected it, and it has not ended.
func (b *inbox) occupies() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.asked.ended && !b.asked.rejected
}

// allocation returns the resources that the node has allocated to the pod.
func (b *inbox) allocation() *allocation {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.allocated
}

// setAllocation records the resources that the node has allocated to the pod.
func (b *inbox) setAllocation(a *allocation) {
	b.mu.Lock()
	b.allocated = a
	b.mu.Unlock()
}

// lastObserved returns what was last observed of the pod, nil before the first
// time.
func (b *inbox) lastObserved() *cri.Pod {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.observed
}

// setObserved records what was observed of the pod. It returns what was before.
func (b *inbox) setObserved(observed *cri.Pod) (before *cri.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before, b.observed = b.observed, observed
	return before
}

// replaceObserved records next if old is the last recorded pod. Other goroutines
// read recorded pods, which are therefore immutable.
func (b *inbox) replaceObserved(old, next *cri.Pod) {
	b.mu.Lock()
	if b.observed == old {
		b.observed = next
	}
	b.mu.Unlock()
}

// setPending records why a resize waits, nil if none does. Since when it does stays the
// same while the reason stays. setPending returns what was recorded before.
func (b *inbox) setPending(condition *v1.PodCondition) (before *v1.PodCondition) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before, b.pending = b.pending, condition
	if before != nil && condition != nil && before.Reason == condition.Reason {
		condition.LastTransitionTime = before.LastTransitionTime
	}
	return before
}

// deferredSince returns since when a resize waits for room on the node, the zero time
// if none does.
func (b *inbox) deferredSince() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pending == nil || b.pending.Reason != v1.PodReasonDeferred {
		return time.Time{}
	}
	return b.pending.LastTransitionTime.Time
}

// setResize records a resize in progress, or one that has failed.
func (b *inbox) setResize(condition *v1.PodCondition) {
	b.mu.Lock()
	b.resizing = condition
	b.mu.Unlock()
}

// takeResize ends the resize in progress and returns its condition, nil if there was
// none.
func (b *inbox) takeResize() (was *v1.PodCondition) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was, b.resizing = b.resizing, nil
	return was
}

// resizes reports whether a resize is in progress and has not failed.
func (b *inbox) resizes() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.resizing != nil && b.resizing.Reason == ""
}

// unsettled returns the allocation of a resize in progress, or of one that has
// failed, and the generation that asked for it; nil if there is none.
func (b *inbox) unsettled() (a *allocation, generation int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.resizing == nil {
		return nil, 0
	}
	return b.allocated, b.resizing.ObservedGeneration
}

// resizeConditions returns the conditions of a resize.
func (b *inbox) resizeConditions() (conditions []v1.PodCondition) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range []*v1.PodCondition{b.pending, b.resizing} {
		if c != nil {
			conditions = append(conditions, *c)
		}
	}
	return conditions
}

// setStatus stores the status of a static pod, which no API server stores. It
// does not change the object, which others read.
func (b *inbox) setStatus(st v1.PodStatus) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if equality.Semantic.DeepEqual(b.asked.pod.Status, st) {
		return
	}
	pod := *b.asked.pod
	pod.Status = st
	b.asked.pod = &pod
}
