package fairness

import (
	"slices"
	"time"
)

// queue is one of a level's queues. It has the requests of the flows that are
// dealt to it.
//
// Start-time fair queuing (Goyal, Vin, Cheng 1996) decides which queue is next.
// The virtual time of a queue is the service that it has received, in seat
// seconds. The queue with the least virtual time is next. An idle queue that
// becomes active starts at the current virtual time, so that it cannot save up
// service.
type queue struct {
	index   int
	waiting list
	// start is the virtual start time of the next request.
	start float64
	// The number of executing requests, their seats, and the seats of waiting
	// requests.
	executing, seats, waitingSeats int
}

// expectedDuration is the assumed duration of an executing request. The queue
// is charged for the actual one at its end.
const expectedDuration = 3 * time.Millisecond

// charge charges the queue for a request that starts.
func (q *queue) charge(r *Request) {
	q.executing++
	q.seats += r.width
	q.start += seatSeconds(r.width, expectedDuration)
}

// correct charges the queue for the actual duration of a request that has
// ended.
func (q *queue) correct(r *Request, took time.Duration) {
	q.executing--
	q.seats -= r.width
	q.start += seatSeconds(r.width, took-expectedDuration)
}

func seatSeconds(width int, d time.Duration) float64 { return float64(width) * d.Seconds() }

// deal returns the least loaded queue of a flow's hand.
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

// join sets the start time of a queue that becomes active.
func (l *level) join(q *queue) { q.start = max(q.start, l.virtual) }

// enqueue adds a request to its queue.
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

// dequeue removes a request from its queue.
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

// nextQueue returns the active queue with the least virtual time; nil if no
// request waits.
func (l *level) nextQueue() (next *queue) {
	for _, q := range l.active {
		if next == nil || q.start < next.start {
			next = q
		}
	}
	return next
}
