package fairness

import (
	"slices"
	"time"
)

// queue is one of a level's queues: the requests of those flows that were
// dealt to it.
//
// Start-time fair queueing (Goyal, Vin, Cheng 1996) decides whose turn it is.
// A queue has a virtual time, in seat seconds of service that it has had. The
// queue that is furthest behind goes next. A queue that comes back after
// having had nothing to do starts where the others are, so that nobody saves
// up service.
type queue struct {
	index   int
	waiting list
	// start is the virtual time at which the next request starts.
	start float64
	// executing and the seats of executing and of waiting requests.
	executing, seats, waitingSeats int
}

// guess is how long a request is taken to last while it is executing; the
// queue is charged for what it really took when it ends.
const guess = 3 * time.Millisecond

// charge notes that a request of the queue starts.
func (q *queue) charge(r *Request) {
	q.executing++
	q.seats += r.width
	q.start += seatSeconds(r.width, guess)
}

// settle notes that a request has ended, which took so long.
func (q *queue) settle(r *Request, took time.Duration) {
	q.executing--
	q.seats -= r.width
	q.start += seatSeconds(r.width, took-guess)
}

func seatSeconds(width int, d time.Duration) float64 { return float64(width) * d.Seconds() }

// deal chooses the least loaded queue of a flow's hand.
func (l *level) deal(hash uint64) *queue {
	var cards [16]int
	var best *queue
	for _, card := range l.queueing.dealer.DealIntoHand(hash, cards[:]) {
		q := l.dealt[card]
		if q == nil {
			q = &queue{index: card}
			l.dealt[card] = q
		}
		if best == nil || q.waitingSeats+q.seats < best.waitingSeats+best.seats {
			best = q
		}
	}
	return best
}

// join lets a queue that had nobody waiting take part again.
func (l *level) join(q *queue) { q.start = max(q.start, l.virtual) }

// enqueue lets a request wait.
func (l *level) enqueue(r *Request) {
	q := r.queue
	if q.waiting.length == 0 {
		l.join(q)
		l.active = append(l.active, q)
	}
	q.waiting.push(r)
	q.waitingSeats += r.width
	l.waiting++
	r.stage, r.decided = waiting, make(chan struct{})
	r.schema.counts.Length.Observe(float64(q.waiting.length))
}

// dequeue takes a request out of its queue.
func (l *level) dequeue(r *Request) {
	q := r.queue
	q.waiting.remove(r)
	q.waitingSeats -= r.width
	l.waiting--
	if q.waiting.length == 0 {
		i := slices.Index(l.active, q)
		l.active = slices.Delete(l.active, i, i+1)
	}
}

// furthestBehind is the queue whose turn it is; nil if nobody waits.
func (l *level) furthestBehind() (next *queue) {
	for _, q := range l.active {
		if next == nil || q.start < next.start {
			next = q
		}
	}
	return next
}
