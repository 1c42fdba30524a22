package scheduler

import (
	"container/heap"
	"context"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Back-off of a pod that could not be scheduled, doubled with each attempt,
// and how long it waits at most for an event that might help it.
const (
	initialBackoff   = time.Second
	maxBackoff       = 10 * time.Second
	maxUnschedulable = 5 * time.Minute
)

// item is a pod on its way through the queue.
//
//	add ──► active ──pop──► being scheduled ──► bound
//	          ▲                    │ does not fit
//	          │ back-off over      ▼
//	       waiting ◄──event── unschedulable
type item struct {
	pod      *framework.Pod
	since    time.Time // when it first came
	added    time.Time // when it became active, for the order
	ready    time.Time // when its back-off ends
	attempts int
	plugins  []string // the filters that refused it
	parked   time.Time
	index    int // in the heap that holds it
	popped   uint64
	// nominated is the node that pods were preempted on for this one.
	nominated string
}

// queue orders the pods to schedule: highest priority first, then oldest.
type queue struct {
	clock clock.WithTicker
	// incoming is told which of the queues a pod came into, and why.
	incoming func(queue, event string)

	mu            sync.Mutex // guards everything below
	active        itemHeap
	waiting       itemHeap
	unschedulable map[types.UID]*item
	places        map[types.UID]*item // every item that is in one of the above
	inFlight      map[types.UID]*item // popped, and neither given back nor gone since
	moves         uint64              // raised by every event; tells whether one came while a pod was being scheduled
	changed       chan struct{}       // closed and replaced when the head may have changed
}

func newQueue(c clock.WithTicker) *queue {
	return &queue{
		clock:         c,
		incoming:      func(string, string) {},
		active:        itemHeap{less: byPriority},
		waiting:       itemHeap{less: func(a, b *item) bool { return a.ready.Before(b.ready) }},
		unschedulable: map[types.UID]*item{},
		places:        map[types.UID]*item{},
		inFlight:      map[types.UID]*item{},
		changed:       make(chan struct{}),
	}
}

func byPriority(a, b *item) bool {
	if a.pod.Priority != b.pod.Priority {
		return a.pod.Priority > b.pod.Priority
	}
	return a.added.Before(b.added)
}

// set takes a new or changed unassigned pod. One whose spec, labels or
// annotations changed is tried again.
func (q *queue) set(pod *v1.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it, ok := q.places[pod.UID]
	if !ok {
		it = &item{since: q.clock.Now()}
		q.places[pod.UID] = it
		q.incoming("active", "PodAdd")
	} else if it.pod.Pod.Generation == pod.Generation && mapsEqual(it.pod.Pod.Labels, pod.Labels) {
		it.pod.Pod = pod // only its status changed
		return
	}
	if ok {
		q.incoming("active", "PodUpdate")
	}
	q.take(it)
	it.pod = framework.NewPod(pod)
	q.activate(it)
}

func mapsEqual(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || w != v {
			return false
		}
	}
	return true
}

func (q *queue) delete(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.inFlight, uid)
	if it, ok := q.places[uid]; ok {
		q.take(it)
		delete(q.places, uid)
	}
}

// expects reports whether a pod that was popped still waits for a node.
func (q *queue) expects(it *item) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.inFlight[it.pod.Pod.UID] == it
}

// pop waits for the next pod to schedule.
func (q *queue) pop(ctx context.Context) (*item, error) {
	for {
		q.mu.Lock()
		now := q.clock.Now()
		q.release(now)
		if q.active.Len() > 0 {
			it := heap.Pop(&q.active).(*item)
			delete(q.places, it.pod.Pod.UID)
			q.inFlight[it.pod.Pod.UID] = it
			it.popped = q.moves
			it.attempts++
			q.mu.Unlock()
			return it, nil
		}
		wait := maxUnschedulable
		if q.waiting.Len() > 0 {
			wait = q.waiting.items[0].ready.Sub(now)
		}
		changed := q.changed
		q.mu.Unlock()
		timer := q.clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		case <-changed:
			timer.Stop()
		case <-timer.C():
		}
	}
}

// giveBack returns a pod that was popped, unless it was deleted meanwhile.
// With plugins it waits for an event that could change their mind; without,
// only for its back-off.
func (q *queue) giveBack(it *item, plugins []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	uid := it.pod.Pod.UID
	if q.inFlight[uid] != it {
		return
	}
	delete(q.inFlight, uid)
	if _, replaced := q.places[uid]; replaced {
		return // a newer version came meanwhile
	}
	now := q.clock.Now()
	backoff := initialBackoff << min(it.attempts-1, 4)
	it.ready = now.Add(min(backoff, maxBackoff))
	it.plugins = plugins
	it.parked = now
	q.places[uid] = it
	if plugins == nil || it.popped != q.moves {
		heap.Push(&q.waiting, it)
		q.incoming("backoff", "ScheduleAttemptFailure")
		q.wake()
		return
	}
	q.incoming("unschedulable", "ScheduleAttemptFailure")
	it.index = -1
	q.unschedulable[uid] = it
}

// move tells of an event that could help the pods that one of the given
// plugins refused; nil is all of them.
func (q *queue) move(event string, plugins []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.moves++
	now := q.clock.Now()
	moved := false
	for uid, it := range q.unschedulable {
		if plugins != nil && !slices.ContainsFunc(it.plugins, func(p string) bool { return slices.Contains(plugins, p) }) {
			continue
		}
		delete(q.unschedulable, uid)
		moved = true
		if it.ready.After(now) {
			heap.Push(&q.waiting, it)
			q.incoming("backoff", event)
		} else {
			q.push(it, now)
			q.incoming("active", event)
		}
	}
	if moved {
		q.wake()
	}
}

// release moves what has waited long enough; called with the lock held.
func (q *queue) release(now time.Time) {
	for q.waiting.Len() > 0 && !q.waiting.items[0].ready.After(now) {
		q.push(heap.Pop(&q.waiting).(*item), now)
		q.incoming("active", "BackoffComplete")
	}
	for uid, it := range q.unschedulable {
		if now.Sub(it.parked) >= maxUnschedulable {
			delete(q.unschedulable, uid)
			q.push(it, now)
			q.incoming("active", "UnschedulableTimeout")
		}
	}
}

// waitingPods is how many pods are in each of the queues, and how many each
// plugin refused.
func (q *queue) waitingPods() (active, backoff, unschedulable int, refused map[string]int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	refused = map[string]int{}
	for _, it := range q.unschedulable {
		for _, p := range it.plugins {
			if p != anyNode {
				refused[p]++
			}
		}
	}
	return q.active.Len(), q.waiting.Len(), len(q.unschedulable), refused
}

func (q *queue) activate(it *item) {
	q.push(it, q.clock.Now())
	q.wake()
}

func (q *queue) push(it *item, now time.Time) {
	it.added = now
	heap.Push(&q.active, it)
}

// take removes an item from wherever it is; called with the lock held.
func (q *queue) take(it *item) {
	if it.pod == nil {
		return
	}
	uid := it.pod.Pod.UID
	if q.unschedulable[uid] == it {
		delete(q.unschedulable, uid)
		return
	}
	for _, h := range []*itemHeap{&q.active, &q.waiting} {
		if it.index >= 0 && it.index < h.Len() && h.items[it.index] == it {
			heap.Remove(h, it.index)
			return
		}
	}
}

func (q *queue) wake() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// itemHeap implements heap.Interface.
type itemHeap struct {
	items []*item
	less  func(a, b *item) bool
}

func (h *itemHeap) Len() int           { return len(h.items) }
func (h *itemHeap) Less(i, j int) bool { return h.less(h.items[i], h.items[j]) }
func (h *itemHeap) Swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	h.items[i].index, h.items[j].index = i, j
}
func (h *itemHeap) Push(x any) {
	it := x.(*item)
	it.index = len(h.items)
	h.items = append(h.items, it)
}
func (h *itemHeap) Pop() any {
	last := len(h.items) - 1
	it := h.items[last]
	h.items[last] = nil
	h.items = h.items[:last]
	it.index = -1
	return it
}
