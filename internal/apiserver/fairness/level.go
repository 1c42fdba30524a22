package fairness

import (
	"sync"
	"sync/atomic"
	"time"
)

// level is a priority level: seats, and queues for those who find none.
type level struct {
	name   string
	exempt bool
	queues atomic.Bool // there is queueing, for who does not hold mu

	// The controller's, guarded by its mutex: the uid as a response header,
	// what is configured, that it no longer is, the smoothed demand.
	uid      []string
	shares   shares
	gone     bool
	smoothed float64

	mu       sync.Mutex // guards the following
	limits   limits
	limit    int // of seats now
	widest   int
	queueing *queueing // nil refuses at once

	executing list
	inUse     int      // seats
	waiting   int      // requests
	dealt     []*queue // by card; nil until it is dealt
	active    []*queue // those in which requests wait
	// virtual is the virtual time of the request that started last.
	virtual float64
	demand  demand
	counts  counts
}

// counts are what a level has done since it is there.
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
		copy(all, l.dealt) // queues that no longer are drain
		l.dealt = all
	}
}

// allow sets how many seats the level has now.
func (l *level) allow(seats int, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit = seats
	l.dispatch(now)
}

// begin starts a request or lets it wait; otherwise it says why not.
func (l *level) begin(r *Request, objects int, hash uint64) (refusal string) {
	now := r.arrived
	l.mu.Lock()
	defer l.mu.Unlock()
	r.width = width(objects, l.widest)
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

// fits says that there are seats for a request. One that is wider than its
// level goes alone.
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

// dispatch starts who waits, as long as there are seats. Nobody overtakes a
// request that is too wide for the seats that are left, or it would never go.
func (l *level) dispatch(now time.Time) {
	for l.waiting > 0 {
		q := l.furthestBehind()
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

// abandon takes a waiting request out of its queue; false says that it has
// been started meanwhile.
func (l *level) abandon(r *Request, refusal string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.stage != waiting {
		return false
	}
	l.dequeue(r)
	r.stage = outside
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

// end takes an executing request's seats and says how long it had them.
func (l *level) end(r *Request, now time.Time) (took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	took = max(now.Sub(r.started), 0)
	l.executing.remove(r)
	r.stage = outside
	l.inUse -= r.width
	l.demand.add(-r.width, now)
	if r.queue != nil {
		r.queue.settle(r, took)
	}
	l.dispatch(now)
	return took
}

// idle says that the level has no requests.
func (l *level) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.executing.length == 0 && l.waiting == 0
}

// observe takes the demand since it was last taken.
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
