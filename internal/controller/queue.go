package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/metrics"
	"github.com/coracle-io/coracle/internal/supervise"
)

// ErrStale is what a sync function returns when the cache does not show yet
// what the controller itself wrote: the key is tried again without a fuss.
var ErrStale = errors.New("the cache is out of date")

// Queue holds the keys that a controller has to reconcile. A key is handed
// to one worker at a time; a key added while it is being worked on is worked
// on once more afterwards.
type Queue[K comparable] struct {
	name  string
	sync  func(context.Context, K) error
	queue workqueue.TypedInterface[K]
	pace  workqueue.TypedRateLimiter[K]
	count *metrics.Queue

	mu sync.Mutex // guards the following
	// delays has a goroutine of its own, so it is nil before the workers begin;
	// early is then when keys are due.
	delays workqueue.TypedDelayingInterface[K]
	early  map[K]time.Time
}

// Key names an object: "namespace/name", or "name" if it has no namespace.
type Key = cache.ObjectName

// NewQueue makes a queue whose keys are reconciled by sync. A key for which
// sync returns an error or panics is tried again after 5 ms, then after twice
// as long each time, up to 1000 s.
func NewQueue[K comparable](name string, sync func(context.Context, K) error) *Queue[K] {
	return NewQueueWithin(name, 1000*time.Second, sync)
}

// NewQueueWithin makes a queue like NewQueue whose longest delay between two
// tries is longest.
func NewQueueWithin[K comparable](name string, longest time.Duration, sync func(context.Context, K) error) *Queue[K] {
	waiting := &line[K]{}
	// without a name it keeps no metrics, for which it would wake up twice a second
	plain := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[K]{Queue: waiting})
	q := &Queue[K]{
		name: name, sync: sync, queue: plain, early: map[K]time.Time{},
		pace: workqueue.NewTypedItemExponentialFailureRateLimiter[K](5*time.Millisecond, longest),
	}
	q.count = metrics.NewQueue(name, q.queue.Len)
	waiting.count = q.count
	return q
}

// Existing makes the sync function of a queue from one that takes objects. An
// object is got from the informer by its key. A key without an object is
// forgotten. The objects are shared and must not be changed.
func Existing[K comparable, T runtime.Object](informer cache.SharedIndexInformer, sync func(context.Context, T) error) func(context.Context, K) error {
	return func(ctx context.Context, key K) error {
		object, exists, err := informer.GetIndexer().GetByKey(fmt.Sprint(key))
		if err != nil || !exists {
			return err
		}
		return sync(ctx, object.(T))
	}
}

// Add asks for a key to be reconciled now.
func (q *Queue[K]) Add(key K) { q.queue.Add(key) }

// AddAfter asks for a key to be reconciled after a delay. Of several delays
// pending for one key the shortest wins.
func (q *Queue[K]) AddAfter(key K, delay time.Duration) {
	q.count.Retried()
	if delays := q.started(key, delay); delays != nil {
		delays.AddAfter(key, delay)
	}
}

// started returns what delays keys. Before there is one, it notes the key.
func (q *Queue[K]) started(key K, delay time.Duration) workqueue.TypedDelayingInterface[K] {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.delays == nil {
		due := time.Now().Add(delay)
		if before, ok := q.early[key]; !ok || due.Before(before) {
			q.early[key] = due
		}
	}
	return q.delays
}

// start begins to hand out keys that are due.
func (q *Queue[K]) start() workqueue.TypedDelayingInterface[K] {
	delays := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[K]{Queue: q.queue})
	q.mu.Lock()
	early := q.early
	q.delays, q.early = delays, nil
	q.mu.Unlock()
	for key, due := range early {
		delays.AddAfter(key, time.Until(due))
	}
	return delays
}

// Len is the number of keys that wait for a worker.
func (q *Queue[K]) Len() int { return q.queue.Len() }

// Workers returns the task that reconciles keys with n workers until its
// context is done. The queue cannot be used again after that.
func (q *Queue[K]) Workers(n int) func(context.Context) error {
	return func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, q.start().ShutDown)
		defer stop()
		hide := metrics.ShowQueue(ctx, q.count)
		defer hide()
		workers, ctx := supervise.Together(ctx)
		for range max(n, 1) {
			workers.Go(func() error {
				for q.next(ctx) {
				}
				return nil
			})
		}
		return workers.Wait()
	}
}

// next reconciles one key and reports whether there may be more.
func (q *Queue[K]) next(ctx context.Context) bool {
	key, quit := q.queue.Get()
	if quit {
		return false
	}
	defer q.queue.Done(key)
	end := q.count.Work()
	defer end()
	log := klog.FromContext(ctx)
	err := supervise.Call(func() error { return q.sync(ctx, key) })
	panicked := (*supervise.Panic)(nil)
	switch {
	case err == nil:
		q.pace.Forget(key)
	case errors.As(err, &panicked):
		supervise.Note(klog.NewContext(ctx, log.WithValues("queue", q.name, "key", key, "tries", q.pace.NumRequeues(key)+1)), err)
		q.retry(key)
	case ctx.Err() != nil:
	case apierrors.IsConflict(err), errors.Is(err, ErrStale):
		log.V(4).Info("Object changed meanwhile, trying again", "queue", q.name, "key", key, "err", err)
		q.retry(key)
	default:
		log.Error(err, "Sync failed, trying again", "queue", q.name, "key", key, "tries", q.pace.NumRequeues(key)+1)
		q.retry(key)
	}
	return true
}

func (q *Queue[K]) retry(key K) {
	q.AddAfter(key, q.pace.When(key))
}
