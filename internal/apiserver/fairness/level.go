package fairness

import (
	"sync"
	"sync/atomic"
	"time"
)

// level is a priority level with its seats and queues.
type level struct {
	name   string
	exempt bool
	queues atomic.Bool // whether there is queueing, for readers without mu

	// The controller's mutex guards the following: the UID as a response
	// header, the configured shares, whether the level was removed from the
	// configuration, and the smoothed demand.
	uid      []string
	shares   shares
	removed  bool
	smoothed float64

	mu       sync.Mutex // guards the following
	limits   limits
	limit    int // of seats, currently
	widest   int
	queueing *queueing // nil refuses requests that find no seat

	executing list
	inUse     int      // seats
	waiting   int      // requests
	dealt     []*queue // by index; nil until first used
	active    []*queue // with waiting requests
	// virtual is the virtual time of the request that was dispatched last.
	virtual float64
	demand  demand
	counts  counts
}

// counts are the totals of a level.
type counts struct{ dispatched, rejected, timedOut, cancelled int }

func newLevel(name string, exempt bool, now time.Time) *level {
	return &level{name: name, exempt: exempt, demand: demand{began: now, changed: now}}
}

// configure changes what a level may do; its requests stay.
func (l *level) configure(lim limits, q *queueing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limits, l.queueing = lim, q
	l.widest = widest(lim, q)
	l.queues.Store(q != nil)
	switch {
	case q == nil:
		l.dealt = nil
	case len(l.dealt) != q.queues:
		all := make([]*queue, q.queues)
		copy(all, l.dealt) // removed queues drain
		l.dealt = all
	}
}

// allow sets the level's current number of seats.
func (l *level) allow(seats int, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit = seats
	l.dispatch(now)
}

// begin starts or enqueues a request, or returns the reason of its refusal.
func (l *level) begin(r *Request, seats int, hash uint64) (refusal string) {
	now := r.arrived
	l.mu.Lock()
	defer l.mu.Unlock()
	r.width = width(seats, l.widest)
	if l.exempt {
		l.demand.add(r.width, now)
		l.start(r, now)
		return ""
	}
	if l.queueing != nil {
		r.queue = l.deal(hash)
	}
	if l.waiting == 0 && l.fits(r) {
		if r.queue != nil {
			l.join(r.queue)
		}
		l.demand.add(r.width, now)
		l.start(r, now)
		return ""
	}
	switch {
	case r.queue == nil:
		refusal = noSeat
	case r.queue.waiting.length >= l.queueing.length:
		refusal = queueFull
	default:
		l.demand.add(r.width, now)
		l.enqueue(r)
		l.dispatch(now)
		return ""
	}
	r.schema.counts.NoRoom.Inc()
	l.counts.rejected++
	return refusal
}

// fits reports whether there are seats for a request. A request that is wider
// than its level runs alone.
func (l *level) fits(r *Request) bool {
	return l.inUse+r.width <= l.limit || l.inUse == 0
}

// start gives a request its seats.
func (l *level) start(r *Request, now time.Time) {
	r.stage, r.started = executing, now
	l.executing.push(r)
	l.inUse += r.width
	l.counts.dispatched++
	if q := r.queue; q != nil {
		l.virtual = max(l.virtual, q.start)
		q.charge(r)
	}
}

// dispatch starts waiting requests while there are seats. It stops at the first
// that does not fit, which would otherwise be overtaken forever.
func (l *level) dispatch(now time.Time) {
	for l.waiting > 0 {
		q := l.nextQueue()
		r := q.waiting.first
		if !l.fits(r) {
			r.schema.counts.NoRoom.Inc()
			return
		}
		l.dequeue(r)
		l.start(r, now)
		close(r.decided)
	}
}

// giveUp removes a waiting request from its queue. It returns false if the
// request no longer waits.
func (l *level) giveUp(r *Request, refusal string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.stage != waiting {
		return false
	}
	l.dequeue(r)
	r.stage = inactive
	l.demand.add(-r.width, now)
	l.counts.rejected++
	if refusal == timedOut {
		l.counts.timedOut++
	} else {
		l.counts.cancelled++
	}
	l.dispatch(now)
	return true
}

// end releases the seats of an executing request, and returns how long it has
// executed.
func (l *level) end(r *Request, now time.Time) (took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	took = max(now.Sub(r.started), 0)
	l.executing.remove(r)
	r.stage = inactive
	l.inUse -= r.width
	l.demand.add(-r.width, now)
	if r.queue != nil {
		r.queue.correct(r, took)
	}
	l.dispatch(now)
	return took
}

// idle reports whether the level has no requests.
func (l *level) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.executing.length == 0 && l.waiting == 0
}

// observe returns the demand since the last call, and the limits.
func (l *level) observe(now time.Time) (observed, limits) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.demand.take(now), l.limits
}

func (l *level) bounds() limits {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.limits
}

func (l *level) allowed() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.limit
}
