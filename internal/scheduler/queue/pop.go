package queue

import (
	"cmp"
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Pop waits for the first pod of the active queue. The pod is in flight until
// Done, AddUnschedulable or Delete. The error is ctx's.
func (q *Queue) Pop(ctx context.Context) (*QueuedPodInfo, error) {
	for ctx.Err() == nil {
		it, changed, wait := q.next()
		if it != nil {
			return it, nil
		}
		if err := q.wait(ctx, changed, wait); err != nil {
			return nil, err
		}
	}
	return nil, ctx.Err()
}

// next takes the first pod of the active queue. If there is none, it returns a
// channel that is closed when the queue changes, and the time until a waiting
// pod is due: 0 if one is. A plugin that panics must not keep the lock.
func (q *Queue) next() (*QueuedPodInfo, <-chan struct{}, time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.options.Clock.Now()
	q.flush(now)
	it := q.active.pop()
	if it == nil {
		it = q.popFromBackoff(now)
	}
	if it == nil {
		q.waiting = true
		return nil, q.changed, q.nextFlush(now)
	}
	q.depart(it)
	return it, nil, 0
}

// depart puts a pod in flight that was taken from the active queue.
func (q *Queue) depart(it *QueuedPodInfo) {
	it.place = nowhere
	it.Attempts++
	delete(q.pods, it.Pod.UID)
	q.flights.add(it)
}

// PopMembers returns a popped pod with the others of its group that wait, which
// are in flight then like it, by priority and the time when each was first
// added. Pods that PreEnqueue keeps back stay, and those that wait for a resize.
func (q *Queue) PopMembers(popped *QueuedPodInfo, members []*v1.Pod) []*QueuedPodInfo {
	q.mu.Lock()
	defer q.mu.Unlock()
	all, now := []*QueuedPodInfo{popped}, q.options.Clock.Now()
	for _, pod := range members {
		it := q.pods[pod.UID]
		if it == nil || it.place == gated || it.IsResizing() {
			continue
		}
		if it.place != active {
			q.take(it)
			if q.activate(it, "PodGroup", now); it.place != active {
				continue
			}
		}
		q.take(it)
		q.depart(it)
		all = append(all, it)
	}
	slices.SortFunc(all, func(a, b *QueuedPodInfo) int {
		return cmp.Or(-cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.sequence, b.sequence))
	})
	return all
}

// PutBack takes back popped pods that were not tried, as if they had not been
// popped.
func (q *Queue) PutBack(untried []*QueuedPodInfo) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, it := range untried {
		f := q.flights.of(it.Pod.UID)
		if f == nil {
			continue // deleted since it was popped
		}
		it.PodInfo = f.latest
		q.flights.remove(it.Pod.UID)
		it.Attempts--
		it.place = active
		q.pods[it.Pod.UID] = it
		q.active.push(it)
	}
	q.wake()
}

// popFromBackoff ends the back-off of the pod that is due first, unless the
// feature is off, and returns it. PreEnqueue may keep the pod back; the next one
// is tried then.
func (q *Queue) popFromBackoff(now time.Time) *QueuedPodInfo {
	for q.options.PopFromBackoff {
		it := q.backoff.first()
		if it == nil {
			return nil
		}
		q.take(it)
		q.activate(it, "PopFromBackoffQ", now)
		if it := q.active.pop(); it != nil {
			return it
		}
	}
	return nil
}

func (q *Queue) wait(ctx context.Context, changed <-chan struct{}, d time.Duration) error {
	if d == 0 {
		return nil
	}
	var expired <-chan time.Time
	if d >= 0 {
		timer := q.options.Clock.NewTimer(d)
		defer timer.Stop()
		expired = timer.C()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-changed:
	case <-expired:
	}
	return nil
}

// flush moves the pods whose time has come, with the lock held. Those that waited too
// long for an event may be as many as there are: the next calls move the rest.
func (q *Queue) flush(now time.Time) {
	for _, waiting := range []*podHeap{&q.backoff, &q.errorBackoff} {
		for it := waiting.first(); it != nil && !it.backoff.expiry.After(now); it = waiting.first() {
			q.take(it)
			q.activate(it, "BackoffComplete", now)
		}
	}
	for it, n := q.unschedulable.first(), 0; it != nil && !it.deadline.After(now) && n < maxFlushed; it, n = q.unschedulable.first(), n+1 {
		it.Flushed = true
		q.requeue(it, afterBackoff, "UnschedulableTimeout", now)
	}
	for it, n := q.gated.first(), 0; it != nil && !it.deadline.After(now) && n < maxFlushed; it, n = q.gated.first(), n+1 {
		q.requeue(it, afterBackoff, "UnschedulableTimeout", now) // asks PreEnqueue again
	}
}

// nextFlush is how long until a pod's time comes, 0 if it has come; -1 is never.
func (q *Queue) nextFlush(now time.Time) time.Duration {
	next := time.Duration(-1)
	for _, waiting := range []*podHeap{&q.backoff, &q.errorBackoff} {
		if it := waiting.first(); it != nil && (next < 0 || it.backoff.expiry.Sub(now) < next) {
			next = it.backoff.expiry.Sub(now)
		}
	}
	for _, waiting := range []*podHeap{&q.unschedulable, &q.gated} {
		if it := waiting.first(); it != nil && (next < 0 || it.deadline.Sub(now) < next) {
			next = max(0, it.deadline.Sub(now))
		}
	}
	return next
}
