// Package compute lets few requests compute at a time, and in turn those of
// different tenants, so that what one tenant asks for delays others by little:
//
//	Enter ──► places taken? ──► waiting: first come first served in a tenant,
//	  │            │            next is the tenant that has had least time
//	  ▼            ▼
//	 Turn ── Waiting (a webhook, the store) ── resume ── Leave
//	   └─ lasts longer than its lease: somebody else gets the place, too
//
// A tenant's time is what his turns lasted, in the manner of start-time fair
// queueing: who comes anew begins where the others are, so that nobody gains by
// having asked for nothing before.
package compute

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// Queue shares out places. Its methods may be called from any goroutine.
type Queue struct {
	places, perTenant int
	lease             time.Duration // 0 is without end

	mu      sync.Mutex // guards the following, and the turns
	free    int
	virtual time.Duration // what the tenant had spent whose turn came last
	tenants map[string]*tenant
}

// tenant is who has a turn, waits for one, or has had more time than others.
type tenant struct {
	spent   time.Duration
	turns   int
	waiting list.List // of *Turn that wait
}

// NewQueue makes a queue for so many places. A tenant has at most perTenant
// turns at a time; both are at least 1. A turn that lasts longer than lease
// keeps nobody waiting any more, as it may be waiting itself; 0 is no such bound.
func NewQueue(places, perTenant int, lease time.Duration) *Queue {
	return &Queue{places: places, free: places, perTenant: perTenant, lease: lease, tenants: map[string]*tenant{}}
}

// Turn is a place that one request holds, or has given back for a while.
type Turn struct {
	queue *Queue
	name  string

	// The queue's mutex guards the following.
	begun   time.Time     // zero without a place
	expiry  *time.Timer   // of the lease; nil if there is none
	lapsed  bool          // somebody else has got the place
	granted chan struct{} // closed when it gets a place, while it waits
	left    bool
	waiting int // for something else than a processor: how many waits, one in another
	waits   int // how often the outermost began or ended
}

// Enter waits for a place. It fails with ctx's error. The turn must leave.
func (q *Queue) Enter(ctx context.Context, name string) (*Turn, error) {
	t := &Turn{queue: q, name: name}
	if err := t.Resume(ctx); err != nil {
		return nil, err
	}
	return t, nil
}

// Leave gives the place back for good. More calls, and calls on nil, do nothing.
func (t *Turn) Leave() {
	if t == nil {
		return
	}
	t.queue.mu.Lock()
	defer t.queue.mu.Unlock()
	t.left = true
	t.end()
}

// Resume waits for a place again after a wait, unless there is one or the turn has left. It
// fails with ctx's error, without a place.
func (t *Turn) Resume(ctx context.Context) error {
	q := t.queue
	q.mu.Lock()
	if t.left || !t.begun.IsZero() || ctx.Err() != nil {
		q.mu.Unlock()
		return ctx.Err()
	}
	in := q.tenants[t.name]
	if in == nil {
		in = &tenant{spent: q.virtual}
		q.tenants[t.name] = in
	}
	in.spent = max(in.spent, q.virtual)
	t.granted = make(chan struct{})
	place := in.waiting.PushBack(t)
	q.grant()
	q.mu.Unlock()

	select {
	case <-t.granted:
		return nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.begun.IsZero() {
		in.waiting.Remove(place)
	} else {
		t.end() // it was granted at the same moment
	}
	q.forget()
	return ctx.Err()
}

// end gives back the place, if there is one. Callers hold mu.
func (t *Turn) end() {
	if t.begun.IsZero() {
		return
	}
	q, in := t.queue, t.queue.tenants[t.name]
	in.spent += time.Since(t.begun)
	in.turns--
	t.begun = time.Time{}
	if t.expiry != nil {
		t.expiry.Stop()
	}
	if !t.lapsed {
		q.free++
	}
	t.lapsed = false
	q.grant()
	q.forget()
}

// grant gives the free places to those who wait. Callers hold mu.
func (q *Queue) grant() {
	for q.free > 0 {
		var next *tenant
		for _, in := range q.tenants {
			if in.waiting.Len() > 0 && in.turns < q.perTenant && (next == nil || in.before(next)) {
				next = in
			}
		}
		if next == nil {
			return
		}
		t := next.waiting.Remove(next.waiting.Front()).(*Turn)
		begun := time.Now()
		t.begun = begun
		if q.lease > 0 {
			t.expiry = time.AfterFunc(q.lease, func() { t.lapse(begun) })
		}
		close(t.granted)
		next.turns++
		q.free--
		q.virtual = max(q.virtual, next.spent)
	}
}

// lapse gives the place of a turn to somebody else, if it is still the one that
// began at a time.
func (t *Turn) lapse(begun time.Time) {
	q := t.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.begun.Equal(begun) && !t.lapsed {
		t.lapsed = true
		q.free++
		q.grant()
	}
}

// before says that a tenant's turn comes before another's.
func (in *tenant) before(other *tenant) bool {
	if in.turns != other.turns {
		return in.turns < other.turns // what these will have spent is not known yet
	}
	return in.spent < other.spent
}

// forget drops what need not be known of tenants who ask for nothing: all, once
// nobody does. Callers hold mu.
func (q *Queue) forget() {
	for name, in := range q.tenants {
		if in.turns == 0 && in.waiting.Len() == 0 && (in.spent <= q.virtual || q.free == q.places) {
			delete(q.tenants, name)
		}
	}
}

type turnKey struct{}

// With lets whoever serves a request find its turn.
func With(ctx context.Context, t *Turn) context.Context { return context.WithValue(ctx, turnKey{}, t) }

// instant is how long a wait is not worth giving the place back.
const instant = 100 * time.Millisecond

// Waiting gives back the place of the request that a context is of, while it
// waits for something else than a processor, unless that takes but an instant.
// resume waits for a place again; its error is ctx's, and says that the request
// is over. A wait within another changes nothing: the place is back when the
// outer one ends. A request waits on one goroutine.
func Waiting(ctx context.Context) (resume func() error) {
	t, _ := ctx.Value(turnKey{}).(*Turn)
	if t == nil {
		return ctx.Err
	}
	wait, outermost := t.wait(1)
	end := sync.OnceFunc(func() { t.wait(-1) })
	if !outermost {
		return func() error {
			end()
			return ctx.Err()
		}
	}
	pause := time.AfterFunc(instant, func() { t.pauseIn(wait) })
	return func() error {
		pause.Stop()
		end()
		return t.Resume(ctx)
	}
}

// wait begins (1) or ends (-1) a wait. It returns the number of the outermost
// wait, and whether this is it.
func (t *Turn) wait(change int) (number int, outermost bool) {
	t.queue.mu.Lock()
	defer t.queue.mu.Unlock()
	outermost = t.waiting == 0 || t.waiting+change == 0
	t.waiting += change
	if outermost {
		t.waits++
	}
	return t.waits, outermost
}

// pauseIn pauses the turn if it is still in a wait.
func (t *Turn) pauseIn(wait int) {
	t.queue.mu.Lock()
	defer t.queue.mu.Unlock()
	if t.waiting > 0 && t.waits == wait {
		t.end()
	}
}
