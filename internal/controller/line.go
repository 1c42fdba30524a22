package controller

import (
	"time"

	"github.com/coracle-io/coracle/internal/metrics"
)

// line holds the keys that wait for a worker, first in, first out, and knows
// how long each has been waiting. It implements workqueue.Queue, under whose
// lock it is used.
type line[K comparable] struct {
	waiting []arrival[K]
	count   *metrics.Queue
}

type arrival[K comparable] struct {
	key K
	at  time.Time
}

// Touch implements workqueue.Queue: a key that waits keeps its place.
func (*line[K]) Touch(K) {}

// Push implements workqueue.Queue.
func (l *line[K]) Push(key K) {
	l.count.Added()
	l.waiting = append(l.waiting, arrival[K]{key, time.Now()})
}

// Len implements workqueue.Queue.
func (l *line[K]) Len() int { return len(l.waiting) }

// Pop implements workqueue.Queue.
func (l *line[K]) Pop() K {
	first := l.waiting[0]
	l.waiting[0] = arrival[K]{} // for the garbage collector
	if l.waiting = l.waiting[1:]; len(l.waiting) == 0 {
		l.waiting = nil
	}
	l.count.Taken(time.Since(first.at))
	return first.key
}
