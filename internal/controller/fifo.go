package controller

import (
	"time"

	"github.com/coracle-io/coracle/internal/metrics"
)

// fifo holds the keys that wait for a worker, first in, first out, and measures
// how long each waits. It implements workqueue.Queue. The workqueue that uses
// it holds a lock while it calls its methods.
type fifo[K comparable] struct {
	items   []fifoItem[K]
	metrics *metrics.Queue
}

type fifoItem[K comparable] struct {
	key   K
	added time.Time
}

// Touch implements workqueue.Queue. A waiting key keeps its place.
func (*fifo[K]) Touch(K) {}

// Push implements workqueue.Queue.
func (f *fifo[K]) Push(key K) {
	f.metrics.Added()
	f.items = append(f.items, fifoItem[K]{key, time.Now()})
}

// Len implements workqueue.Queue.
func (f *fifo[K]) Len() int { return len(f.items) }

// Pop implements workqueue.Queue.
func (f *fifo[K]) Pop() K {
	first := f.items[0]
	f.items[0] = fifoItem[K]{} // release the key
	if f.items = f.items[1:]; len(f.items) == 0 {
		f.items = nil
	}
	f.metrics.Taken(time.Since(first.added))
	return first.key
}
