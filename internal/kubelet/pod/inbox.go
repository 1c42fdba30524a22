package pod

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/status"
	podutil "github.com/coracle-io/coracle/internal/pod"
)

// request is what is asked of a worker at one moment.
type request struct {
	pod      *v1.Pod
	removed  bool             // the source no longer has the pod
	failed   *status.Cause    // why the pod must end as Failed
	rejected bool             // failed is why the node did not take it
	grace    *int64           // overrides the pod's grace period, for evictions
	target   *v1.PodCondition // DisruptionTarget of a pod that is evicted
	ended    bool             // nothing of the pod runs nor ever will
}

// ending says whether the pod is to end.
func (r *request) ending() bool {
	return r.removed || r.failed != nil || r.pod.DeletionTimestamp != nil
}

// inbox is what others ask of a worker. Its methods may be called from any
// goroutine.
type inbox struct {
	static bool          // the pod comes from a manifest, says its source
	woken  chan struct{} // something may have changed

	mu        sync.Mutex // guards what follows
	asked     request
	changed   bool // what the pod is made of is not what it was
	observed  *cri.Pod
	interrupt context.CancelFunc // of what is under way
	killing   int64              // the grace period of the killing under way, -1 for none
}

func newInbox(pod *v1.Pod) inbox {
	return inbox{woken: make(chan struct{}, 1), asked: request{pod: pod}, killing: -1}
}

func (b *inbox) wake() {
	select {
	case b.woken <- struct{}{}:
	default:
	}
}

// drain forgets that the worker was woken.
func (b *inbox) drain() {
	select {
	case <-b.woken:
	default:
	}
}

// refresh wakes the worker after a change of what the pod is made of: whatever
// failed before is tried again at once.
func (b *inbox) refresh() {
	b.mu.Lock()
	b.changed = true
	b.mu.Unlock()
	b.wake()
}

// takeChanged returns whether refresh was called or the pod changed since the
// last call.
func (b *inbox) takeChanged() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	changed := b.changed
	b.changed = false
	return changed
}

// update gives the worker the pod's newest version. A deletion interrupts what
// is under way, and so does one that leaves less time than the last.
func (b *inbox) update(pod *v1.Pod) {
	b.mu.Lock()
	if b.static {
		pod.Status = b.asked.pod.Status
	}
	b.changed = b.changed || b.asked.pod.Generation != pod.Generation
	b.asked.pod = pod
	b.interruptIfEnding()
	b.mu.Unlock()
	b.wake()
}

// remove tells the worker that the source no longer has the pod.
func (b *inbox) remove() {
	b.mu.Lock()
	b.asked.removed = true
	b.interruptIfEnding()
	b.mu.Unlock()
	b.wake()
}

// reject makes a pod that has not begun end as Failed.
func (b *inbox) reject(cause status.Cause) {
	b.mu.Lock()
	b.asked.rejected, b.asked.failed = true, &cause
	b.mu.Unlock()
}

// fail ends the pod as Failed, within grace seconds if not nil.
func (b *inbox) fail(cause status.Cause, grace *int64, target *v1.PodCondition) {
	b.mu.Lock()
	if b.asked.failed == nil {
		b.asked.failed, b.asked.grace, b.asked.target = &cause, grace, target
	}
	b.interruptIfEnding()
	b.mu.Unlock()
	b.wake()
}

// end notes that nothing of the pod runs any more.
func (b *inbox) end() {
	b.mu.Lock()
	b.asked.ended = true
	b.mu.Unlock()
}

// interruptIfEnding is called with the lock held.
func (b *inbox) interruptIfEnding() {
	if !b.asked.ending() || b.interrupt == nil {
		return
	}
	if b.killing < 0 || GracePeriod(b.asked.pod, b.asked.grace) < b.killing {
		b.interrupt()
	}
}

// interruptible returns a context that update, remove and fail can end.
// killing is the grace period of what it is for, -1 if that kills nothing.
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

// superseded says whether more is asked of the worker than to run this version
// of the pod.
func (b *inbox) superseded(pod *v1.Pod) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked.pod != pod || b.asked.removed || b.asked.failed != nil || b.changed
}

// current returns the newest version of the pod.
func (b *inbox) current() *v1.Pod { return b.request().pod }

// copied returns a copy of the newest version of the pod.
func (b *inbox) copied() *v1.Pod {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked.pod.DeepCopy()
}

// active returns the pod and whether it holds resources of the node.
func (b *inbox) active() (*v1.Pod, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := &b.asked
	rejected := r.failed != nil && r.pod.Status.StartTime == nil
	return r.pod, !r.ended && !r.removed && !rejected && !podutil.IsFinished(r.pod)
}

// lastObserved returns what was last observed of the pod, which may be nil.
func (b *inbox) lastObserved() *cri.Pod {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.observed
}

func (b *inbox) setObserved(observed *cri.Pod) {
	b.mu.Lock()
	b.observed = observed
	b.mu.Unlock()
}

// setStatus keeps the status of a static pod, which no API server keeps.
func (b *inbox) setStatus(st v1.PodStatus) {
	b.mu.Lock()
	b.asked.pod.Status = st
	b.mu.Unlock()
}
