package fairness

import (
	"context"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// Request is one request between Begin and End. The zero value is ready; it
// is used once. It must stay where it is until End: levels link it into their
// lists, so that following requests allocates nothing.
type Request struct {
	// What it is, for who asks what is going on. Whoever begins the request
	// must not change what these point at before its end.
	user          user.Info
	info          *apirequest.RequestInfo
	name          string
	distinguisher string

	schema *schema
	width  int
	// Waited is how long it was in a queue.
	Waited  time.Duration
	arrived time.Time

	// Guarded by the level's mutex.
	stage      stage
	started    time.Time
	queue      *queue // nil where the level has none
	next, prev *Request
	decided    chan struct{} // of a waiting request; closed when it may go on
}

// stage says where a request is.
type stage uint8

const (
	outside stage = iota
	waiting
	executing
)

// Begin finds the request's place and returns once it may be executed, or
// false if it must be refused. objects is about how many objects the server
// will go through for it. Where all seats of its level are taken it waits in
// its queue: at most for a quarter of the time until ctx's deadline, and not
// after ctx has ended. now is when it arrived.
//
// After true, End must be called.
func (c *Controller) Begin(ctx context.Context, r *Request, u user.Info, info *apirequest.RequestInfo, objects int, now time.Time) bool {
	s := c.rules.Load().classify(u, info)
	r.schema, r.user, r.info, r.name, r.arrived = s, u, info, info.Name, now
	l := s.level
	var hash uint64
	if l.queues.Load() {
		r.distinguisher = s.distinguisher(u, info)
		hash = s.flow(c.seed, r.distinguisher)
	}
	refusal := l.begin(r, objects, hash)
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

// Reasons of refusals.
const (
	noSeat    = "concurrency-limit"
	queueFull = "queue-full"
	timedOut  = "time-out"
	cancelled = "cancelled"
)

// wait returns why the request must be refused, "" if it need not be.
func (c *Controller) wait(ctx context.Context, r *Request) (refusal string) {
	patience := c.patience
	if deadline, ok := ctx.Deadline(); ok {
		patience = deadline.Sub(r.arrived) / 4
	}
	timer := time.NewTimer(min(patience, longestWait))
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
	if refusal != "" && r.schema.level.abandon(r, refusal, now) {
		r.schema.counts.GaveUp.Observe(r.Waited.Seconds())
		return refusal
	}
	return ""
}

// longestWait bounds the time in a queue whatever the deadline.
const longestWait = time.Minute

// End gives the request's seats back. More calls, and calls for requests that
// were refused, do nothing.
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

// Schema and Level name where a request that has begun, or was refused,
// belongs; "" of others.
func (r *Request) Schema() string {
	if r.schema == nil {
		return ""
	}
	return r.schema.name
}

// Level is the priority level.
func (r *Request) Level() string {
	if r.schema == nil {
		return ""
	}
	return r.schema.level.name
}

// Seats is how many seats the request takes.
func (r *Request) Seats() int { return r.width }

// UIDs are those of the flow schema and of the priority level, as values of
// response headers, which must not be changed.
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
