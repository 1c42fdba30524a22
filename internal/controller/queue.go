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

// ErrStale is returned by a sync function if the informer's cache does not yet
// show the controller's own writes. The queue retries the key and does not log
// an error.
var ErrStale = errors.New("the cache is out of date")

// Queue is a rate-limited work queue and the workers that reconcile its keys.
// At most one worker processes a key at a time. A key that is added while it
// is being processed is processed once more afterwards.
type Queue[K comparable] struct {
	name        string
	sync        func(context.Context, K) error
	queue       workqueue.TypedInterface[K]
	rateLimiter workqueue.TypedRateLimiter[K]
	queues      *metrics.Queues // where metrics are shown while workers run; may be nil
	metrics     *metrics.Queue

	mu sync.Mutex // guards the following
	// delaying owns a goroutine, so it is nil until the workers start. Until
	// then, due holds the keys passed to AddAfter and when they are due.
	delaying workqueue.TypedDelayingInterface[K]
	due      map[K]time.Time
}

// Key names an object: "namespace/name", or "name" if it has no namespace.
type Key = cache.ObjectName

// NewQueue returns a queue whose keys are reconciled by sync. A key for which
// sync returns an error or panics is retried after 5 ms; the delay doubles with
// each retry, up to 1000 s. The metrics of the queue are shown in queues, under
// name, while its workers run; queues may be nil.
func NewQueue[K comparable](queues *metrics.Queues, name string, sync func(context.Context, K) error) *Queue[K] {
	return NewQueueWithMaxDelay(queues, name, 1000*time.Second, sync)
}

// NewQueueWithMaxDelay is like NewQueue, with another limit for the delay
// between two attempts.
func NewQueueWithMaxDelay[K comparable](queues *metrics.Queues, name string, maxDelay time.Duration, sync func(context.Context, K) error) *Queue[K] {
	waiting := &fifo[K]{}
	// An unnamed workqueue keeps no metrics of its own. With metrics, it would
	// wake up twice a second.
	unnamed := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[K]{Queue: waiting})
	q := &Queue[K]{
		name: name, sync: sync, queue: unnamed, queues: queues, due: map[K]time.Time{},
		rateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[K](5*time.Millisecond, maxDelay),
	}
	q.metrics = metrics.NewQueue(name, q.queue.Len)
	waiting.metrics = q.metrics
	return q
}

// Existing returns a sync function for a queue that looks a key up in the
// informer and calls sync with the object. Keys without an object are ignored.
// The objects are shared and must not be changed.
func Existing[K comparable, T runtime.Object](informer cache.SharedIndexInformer, sync func(context.Context, T) error) func(context.Context, K) error {
	return func(ctx context.Context, key K) error {
		object, exists, err := informer.GetIndexer().GetByKey(fmt.Sprint(key))
		if err != nil || !exists {
			return err
		}
		return sync(ctx, object.(T))
	}
}

// Add enqueues a key.
func (q *Queue[K]) Add(key K) { q.queue.Add(key) }

// AddAfter enqueues a key after a delay. If several delays are pending for a
// key, the shortest wins.
func (q *Queue[K]) AddAfter(key K, delay time.Duration) {
	q.metrics.Retried()
	if delaying := q.delayingOrDefer(key, delay); delaying != nil {
		delaying.AddAfter(key, delay)
	}
}

// delayingOrDefer returns the delaying queue. If the workers have not started,
// it records when the key is due and returns nil.
func (q *Queue[K]) delayingOrDefer(key K, delay time.Duration) workqueue.TypedDelayingInterface[K] {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.delaying == nil {
		due := time.Now().Add(delay)
		if before, ok := q.due[key]; !ok || due.Before(before) {
			q.due[key] = due
		}
	}
	return q.delaying
}

// start creates the delaying queue and moves the recorded keys into it.
func (q *Queue[K]) start() workqueue.TypedDelayingInterface[K] {
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[K]{Queue: q.queue})
	q.mu.Lock()
	recorded := q.due
	q.delaying, q.due = delaying, nil
	q.mu.Unlock()
	for key, due := range recorded {
		delaying.AddAfter(key, time.Until(due))
	}
	return delaying
}

// Len returns the number of keys that wait for a worker.
func (q *Queue[K]) Len() int { return q.queue.Len() }

// Workers returns a task that runs n workers, at least one, until its context
// is done. The queue cannot be used afterwards.
func (q *Queue[K]) Workers(n int) func(context.Context) error {
	return func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, q.start().ShutDown)
		defer stop()
		hide := q.queues.Show(q.metrics)
		defer hide()
		workers, ctx := supervise.WithContext(ctx)
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

// next waits for a key and reconciles it. It returns false once the queue has
// been shut down.
func (q *Queue[K]) next(ctx context.Context) bool {
	key, quit := q.queue.Get()
	if quit {
		return false
	}
	defer q.queue.Done(key)
	end := q.metrics.Work()
	defer end()
	log := klog.FromContext(ctx)
	err := supervise.Call(func() error { return q.sync(ctx, key) })
	panicked := (*supervise.Panic)(nil)
	switch {
	case err == nil:
		q.rateLimiter.Forget(key)
	case errors.As(err, &panicked):
		supervise.RecordPanic(klog.NewContext(ctx, log.WithValues("queue", q.name, "key", key, "tries", q.rateLimiter.NumRequeues(key)+1)), err)
		q.retry(key)
	case ctx.Err() != nil:
	case apierrors.IsConflict(err), errors.Is(err, ErrStale):
		log.V(4).Info("Object has changed, retrying", "queue", q.name, "key", key, "err", err)
		q.retry(key)
	default:
		log.Error(err, "Sync failed, retrying", "queue", q.name, "key", key, "tries", q.rateLimiter.NumRequeues(key)+1)
		q.retry(key)
	}
	return true
}

// Forget makes the delays between the retries of a key begin anew. A sync function that has
// made progress calls it, if it returns an error because there is more to wait for.
func (q *Queue[K]) Forget(key K) { q.rateLimiter.Forget(key) }

func (q *Queue[K]) retry(key K) {
	q.AddAfter(key, q.rateLimiter.When(key))
}
