package fairness

import (
	"context"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// Request is one request between Begin and End. The zero value is ready for one
// use. It must not be moved before End: levels link requests into lists, so
// that tracking them allocates nothing.
type Request struct {
	// For dumps. The caller of Begin must not change what these point to before
	// End.
	user          user.Info
	info          *apirequest.RequestInfo
	name          string
	distinguisher string

	schema *schema
	width  int
	// Waited is the time in a queue.
	Waited  time.Duration
	arrived time.Time

	// The level's mutex guards the following.
	stage      stage
	started    time.Time
	queue      *queue // nil if the level has none
	next, prev *Request
	decided    chan struct{} // closed when a waiting request starts
}

// stage is the state of a request.
type stage uint8

const (
	inactive stage = iota
	waiting
	executing
)

// Begin classifies the request and returns true once it may be executed, or
// false if it must be refused. seats is how many seats it asks for, of which it
// gets one at least and as many as its level allows at most. now is the time of its
// arrival. If its level has no free seat, Begin blocks while the request waits in a queue: for at most a quarter
// of the time until ctx's deadline, and until ctx ends.
//
// If it returns true, the caller must call End.
func (c *Controller) Begin(ctx context.Context, r *Request, u user.Info, info *apirequest.RequestInfo, seats int, now time.Time) bool {
	s := c.rules.Load().classify(u, info)
	r.schema, r.user, r.info, r.name, r.arrived = s, u, info, info.Name, now
	l := s.level
	var hash uint64
	if l.queues.Load() {
		r.distinguisher = s.distinguisher(u, info)
		hash = s.flow(c.seed, r.distinguisher)
	}
	refusal := l.begin(r, seats, hash)
	if refusal == "" && r.decided != nil {
		refusal = c.wait(ctx, r)
	}
	if refusal != "" {
		s.counts.Rejected(refusal)
		return false
	}
	if !l.exempt {
		s.counts.Waited.Observe(r.Waited.Seconds())
	}
	s.counts.Dispatched.Inc()
	s.counts.Width.Observe(float64(r.width))
	return true
}

// The reasons of refusals, as in metrics.
const (
	noSeat    = "concurrency-limit"
	queueFull = "queue-full"
	timedOut  = "time-out"
	cancelled = "cancelled"
)

// wait waits until the request starts, and returns the reason if it must be
// refused instead.
func (c *Controller) wait(ctx context.Context, r *Request) (refusal string) {
	queueTimeout := c.queueTimeout
	if deadline, ok := ctx.Deadline(); ok {
		queueTimeout = deadline.Sub(r.arrived) / 4
	}
	timer := time.NewTimer(min(queueTimeout, maxQueueTime))
	defer timer.Stop()
	select {
	case <-r.decided:
	case <-timer.C:
		refusal = timedOut
	case <-ctx.Done():
		refusal = cancelled
	}
	now := c.clock.Now()
	r.Waited = now.Sub(r.arrived)
	if refusal != "" && r.schema.level.giveUp(r, refusal, now) {
		r.schema.counts.GaveUp.Observe(r.Waited.Seconds())
		return refusal
	}
	return ""
}

// maxQueueTime bounds the time in a queue for any deadline.
const maxQueueTime = time.Minute

// End releases the request's seats. It does nothing for requests that were
// refused or have ended.
func (r *Request) End(now time.Time) {
	if r.schema == nil || r.stage != executing {
		return
	}
	took := r.schema.level.end(r, now)
	if r.info.Verb == "watch" {
		r.schema.counts.Begun.Observe(took.Seconds())
	} else {
		r.schema.counts.Executed.Observe(took.Seconds())
	}
}

// Schema returns the name of the flow schema of a request that has begun or was
// refused; "" for others.
func (r *Request) Schema() string {
	if r.schema == nil {
		return ""
	}
	return r.schema.name
}

// Level returns the name of the priority level, like Schema.
func (r *Request) Level() string {
	if r.schema == nil {
		return ""
	}
	return r.schema.level.name
}

// Seats returns how many seats the request takes.
func (r *Request) Seats() int { return r.width }

// UIDs returns the UIDs of the flow schema and of the priority level as values
// of response headers. They must not be changed.
func (r *Request) UIDs() (flowSchema, priorityLevel []string) {
	return r.schema.uid, r.schema.levelUID
}

// list is a list of requests; each is in at most one.
type list struct {
	first, last *Request
	length      int
}

func (l *list) push(r *Request) {
	r.prev, r.next = l.last, nil
	if l.last != nil {
		l.last.next = r
	} else {
		l.first = r
	}
	l.last = r
	l.length++
}

func (l *list) remove(r *Request) {
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		l.first = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	} else {
		l.last = r.prev
	}
	r.prev, r.next = nil, nil
	l.length--
}

// all yields the requests in order.
func (l *list) all(yield func(*Request) bool) {
	for r := l.first; r != nil; r = r.next {
		if !yield(r) {
			return
		}
	}
}
