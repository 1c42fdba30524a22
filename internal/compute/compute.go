// Package compute bounds how many requests compute at a time, and shares the
// slots fairly among tenants, so that one tenant's requests hardly delay the
// requests of others:
//
//	Acquire ──► slots taken? ──► queue: in order of arrival within a tenant;
//	   │             │           the next tenant is the one with least time
//	   ▼             ▼
//	 Slot ── Yield (a webhook, the store) ── resume ── Release
//	   └─ held longer than its lease: another request gets a slot, too
//
// A tenant's time is how long its requests have held slots, as in start-time
// fair queuing. A new tenant begins with the time of the others, so that a
// tenant gains nothing by having been idle.
package compute

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// Queue shares out slots. It is safe for concurrent use.
type Queue struct {
	slots, perTenant int
	lease            time.Duration // 0 is no lease

	mu      sync.Mutex // guards the following, and the slots
	free    int
	virtual time.Duration // the time of the tenant that got a slot last
	tenants map[string]*tenant
}

// tenant holds slots, waits for some, or has had more time than others.
type tenant struct {
	spent   time.Duration
	held    int
	waiting list.List // of *Slot
}

// NewQueue returns a queue for a number of slots, of which a tenant holds at
// most perTenant at a time. Both are at least 1. A slot that is held longer
// than lease counts as free, since its holder may itself wait for another
// request; 0 is no lease.
func NewQueue(slots, perTenant int, lease time.Duration) *Queue {
	return &Queue{slots: slots, free: slots, perTenant: perTenant, lease: lease, tenants: map[string]*tenant{}}
}

// Slot is a slot that one request holds, or has yielded.
type Slot struct {
	queue *Queue
	name  string

	// The queue's mutex guards the following.
	begun    time.Time     // when it was granted; zero while it is not held
	expiry   *time.Timer   // of the lease; nil if there is none
	expired  bool          // the lease is over, and another has got the slot
	granted  chan struct{} // closed when the slot is granted
	released bool
	yields   int // how many calls of Yield are nested
	yield    int // changes when the outermost Yield begins or ends
}

// Acquire waits for a slot for a tenant. It fails only with ctx's error. The
// caller must release the slot.
func (q *Queue) Acquire(ctx context.Context, tenant string) (*Slot, error) {
	s := &Slot{queue: q, name: tenant}
	if err := s.resume(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Release gives the slot back permanently. Later calls have no effect. Release
// of a nil Slot has no effect either.
func (s *Slot) Release() {
	if s == nil {
		return
	}
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	s.released = true
	s.end()
}

// resume waits until the slot is granted, unless it is held or was released. It
// fails only with ctx's error, and the slot is not held then.
func (s *Slot) resume(ctx context.Context) error {
	q := s.queue
	q.mu.Lock()
	if s.released || !s.begun.IsZero() || ctx.Err() != nil {
		q.mu.Unlock()
		return ctx.Err()
	}
	in := q.tenants[s.name]
	if in == nil {
		in = &tenant{spent: q.virtual}
		q.tenants[s.name] = in
	}
	in.spent = max(in.spent, q.virtual)
	s.granted = make(chan struct{})
	element := in.waiting.PushBack(s)
	q.grant()
	q.mu.Unlock()

	select {
	case <-s.granted:
		return nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if s.begun.IsZero() {
		in.waiting.Remove(element)
	} else {
		s.end() // it was granted at the same moment
	}
	q.removeIdle()
	return ctx.Err()
}

// end gives back the slot if it is held. Callers hold mu.
func (s *Slot) end() {
	if s.begun.IsZero() {
		return
	}
	q, in := s.queue, s.queue.tenants[s.name]
	in.spent += time.Since(s.begun)
	in.held--
	s.begun = time.Time{}
	if s.expiry != nil {
		s.expiry.Stop()
	}
	if !s.expired {
		q.free++
	}
	s.expired = false
	q.grant()
	q.removeIdle()
}

// grant gives the free slots to waiting requests. Callers hold mu.
func (q *Queue) grant() {
	for q.free > 0 {
		var next *tenant
		for _, in := range q.tenants {
			if in.waiting.Len() > 0 && in.held < q.perTenant && (next == nil || in.before(next)) {
				next = in
			}
		}
		if next == nil {
			return
		}
		s := next.waiting.Remove(next.waiting.Front()).(*Slot)
		begun := time.Now()
		s.begun = begun
		if q.lease > 0 {
			s.expiry = time.AfterFunc(q.lease, func() { s.expire(begun) })
		}
		close(s.granted)
		next.held++
		q.free--
		q.virtual = max(q.virtual, next.spent)
	}
}

// expire frees the slot of a request whose lease is over, if the slot is still
// the one that was granted at begun.
func (s *Slot) expire(begun time.Time) {
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if s.begun.Equal(begun) && !s.expired {
		s.expired = true
		q.free++
		q.grant()
	}
}

// before reports whether a tenant gets the next slot rather than another.
func (in *tenant) before(other *tenant) bool {
	if in.held != other.held {
		return in.held < other.held // the time of held slots is not known yet
	}
	return in.spent < other.spent
}

// removeIdle deletes the tenants that hold no slot, wait for none and have no
// more time than others; if no slot is held, all of them. Callers hold mu.
func (q *Queue) removeIdle() {
	for name, in := range q.tenants {
		if in.held == 0 && in.waiting.Len() == 0 && (in.spent <= q.virtual || q.free == q.slots) {
			delete(q.tenants, name)
		}
	}
}

type slotKey struct{}

// WithSlot returns a context in which Yield finds the request's slot.
func WithSlot(ctx context.Context, s *Slot) context.Context {
	return context.WithValue(ctx, slotKey{}, s)
}

// shortWait is how long a wait must last for the slot to be given back.
const shortWait = 100 * time.Millisecond

// Yield gives back the slot of the request that ctx belongs to while the
// request waits for something other than a processor. It does so only once the
// wait has lasted shortWait. The caller must call resume after the wait. resume
// waits for a slot again, and fails only with ctx's error. Nested calls do
// nothing: the slot is held again when the outermost resume returns. A request
// must not call Yield from several goroutines.
func Yield(ctx context.Context) (resume func() error) {
	s, _ := ctx.Value(slotKey{}).(*Slot)
	if s == nil {
		return ctx.Err
	}
	yield, outermost := s.nest(1)
	end := sync.OnceFunc(func() { s.nest(-1) })
	if !outermost {
		return func() error {
			end()
			return ctx.Err()
		}
	}
	timer := time.AfterFunc(shortWait, func() { s.giveUp(yield) })
	return func() error {
		timer.Stop()
		end()
		return s.resume(ctx)
	}
}

// nest counts that a Yield begins (1) or ends (-1). It returns the number of the
// outermost Yield, and whether this is it.
func (s *Slot) nest(change int) (yield int, outermost bool) {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	outermost = s.yields == 0 || s.yields+change == 0
	s.yields += change
	if outermost {
		s.yield++
	}
	return s.yield, outermost
}

// giveUp gives back the slot if the given Yield has not ended.
func (s *Slot) giveUp(yield int) {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	if s.yields > 0 && s.yield == yield {
		s.end()
	}
}
