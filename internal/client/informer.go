package client

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/supervise"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// informer is a cache.SharedIndexInformer of a view. It makes the same guarantees as
// client-go's: a handler is called for every change in order and sequentially, and
// the indexer contains the notified state or a newer one. It needs neither decoding
// nor retries:
//
//	watch cache ── cursor: new events ──► indexer
//	                               └──► one batch, shared ──► listener ──► handler
//	                                                   └────► listener ──► handler
//
// Objects belong to the watch cache and must not be changed. There is no resync.
type informer struct {
	view    *view
	indexer cache.Indexer
	synced  chan struct{} // closed once the indexer holds the first list

	mu        sync.Mutex      // guards the following, and changes of the indexer
	ctx       context.Context // of RunWithContext; nil before
	listeners []*listener
	running   sync.WaitGroup // listeners
	stopped   bool
	revision  int64 // of the last batch
}

var _ cache.SharedIndexInformer = (*informer)(nil)

// newInformer returns an informer that has not been started.
func newInformer(v *view) *informer {
	return &informer{
		view:    v,
		indexer: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
		synced:  make(chan struct{}),
	}
}

// RunWithContext runs the informer until ctx is done, and returns when all handlers
// have returned.
func (i *informer) RunWithContext(ctx context.Context) {
	if !i.start(ctx) {
		return
	}
	defer i.stop()
	select {
	case <-i.view.cache.Synced():
	case <-ctx.Done():
		return
	}
	for ctx.Err() == nil {
		err := supervise.Call(func() error { return i.listAndWatch(ctx) })
		if panicked := (*supervise.Panic)(nil); errors.As(err, &panicked) { // for example in an index function
			supervise.RecordPanic(ctx, err)
			supervise.Pause(ctx, retryAfter)
		}
	}
}

// retryAfter is how long an informer waits after a panic before it lists again.
const retryAfter = 100 * time.Millisecond

// listAndWatch lists the view and applies its events until ctx is done or the cursor
// has fallen behind.
func (i *informer) listAndWatch(ctx context.Context) error {
	objects, revision := i.view.list()
	i.replace(objects, revision)
	err := i.watch(ctx, revision)
	if errors.Is(err, watchcache.ErrRemoved) {
		i.replace(nil, revision)
	}
	if !errors.Is(err, store.ErrCompacted) {
		<-ctx.Done()
	}
	return err
}

// start starts the listeners. It returns false if the informer was started before.
func (i *informer) start(ctx context.Context) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ctx != nil || i.stopped {
		return false
	}
	i.ctx = ctx
	for _, l := range i.listeners {
		i.runListener(l)
	}
	return true
}

// runListener runs a listener in a goroutine. Callers hold mu.
func (i *informer) runListener(l *listener) {
	ctx := i.ctx
	i.running.Go(func() { l.run(ctx) })
}

func (i *informer) stop() {
	i.mu.Lock()
	i.stopped = true
	i.mu.Unlock()
	i.running.Wait()
}

// watch applies the events after a revision until the cursor fails.
func (i *informer) watch(ctx context.Context, after int64) error {
	cursor, err := i.view.watch(after)
	if err != nil {
		return err
	}
	for {
		events, _, err := cursor.Next(ctx, nil)
		if err != nil {
			return err
		}
		i.apply(events)
	}
}

// apply applies events to the indexer and notifies the listeners.
func (i *informer) apply(events []*watchcache.Event) {
	b := eventBatch{notifications: make([]notification, 0, len(events))}
	i.mu.Lock()
	defer i.mu.Unlock()
	// The listeners get what was applied before a panic, because replace finds no
	// difference there.
	defer func() {
		if len(b.notifications) > 0 {
			i.distribute(b)
		}
	}()
	for _, e := range events {
		eventType, _ := i.view.selected.EventFor(e)
		if eventType == 0 {
			continue
		}
		i.updateIndexer(&b, eventType, i.view.version.FromHub(e.Entry.Object))
	}
	if len(b.notifications) > 0 {
		i.revision = events[len(events)-1].Revision
	}
}

// replace replaces the content of the indexer atomically, so that it always belongs to
// its revision, and notifies the listeners of the differences. The first call makes the
// informer and its listeners synced.
func (i *informer) replace(objects []runtime.Object, revision int64) {
	var b eventBatch
	i.mu.Lock()
	defer i.mu.Unlock()
	kept := make(map[string]bool, len(objects))
	items := make([]any, 0, len(objects))
	for _, obj := range objects {
		key, _ := cache.MetaNamespaceKeyFunc(obj)
		kept[key] = true
		items = append(items, obj)
		if old, ok, _ := i.indexer.GetByKey(key); !ok {
			b.notifications = append(b.notifications, notification{eventType: watchcache.Added, object: obj})
		} else if old != obj {
			b.notifications = append(b.notifications, notification{eventType: watchcache.Modified, old: old, object: obj})
		}
	}
	for _, key := range i.indexer.ListKeys() {
		if kept[key] {
			continue
		}
		old, _, _ := i.indexer.GetByKey(key)
		b.notifications = append(b.notifications, notification{eventType: watchcache.Deleted, object: cache.DeletedFinalStateUnknown{Key: key, Obj: old}})
	}
	// The indexer has the new content also if an index function panics.
	defer func() { i.distribute(b) }()
	_ = i.indexer.Replace(items, strconv.FormatInt(revision, 10)) // the key function supports all objects
	i.revision = revision
	if b.initial = !i.HasSynced(); b.initial {
		close(i.synced)
	}
}

// updateIndexer applies one change to the indexer and adds its notification to a batch.
// If an index function panics, the batch has the change if the indexer has it: the
// indexer stores an object before it calls the functions, and removes it after. The
// indexer's errors are ignored, because its key function supports all objects.
func (i *informer) updateIndexer(b *eventBatch, eventType watchcache.EventType, obj runtime.Object) {
	n := notification{eventType: eventType, object: obj}
	if eventType == watchcache.Deleted {
		_ = i.indexer.Delete(obj)
		b.notifications = append(b.notifications, n)
		return
	}
	if eventType == watchcache.Modified {
		n.old, _, _ = i.indexer.Get(obj)
	}
	b.notifications = append(b.notifications, n)
	_ = i.indexer.Update(obj) // or adds it
}

// distribute adds a batch to every listener. Callers hold mu.
func (i *informer) distribute(b eventBatch) {
	for _, l := range i.listeners {
		l.add(b)
	}
}

// AddEventHandlerWithOptions implements cache.SharedInformer. If the informer has
// synced, the handler is first notified of all existing objects.
func (i *informer) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, _ cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stopped {
		return nil, errors.New("the informer has stopped: no handler can be added")
	}
	l := newListener(handler)
	if i.HasSynced() {
		b := eventBatch{initial: true}
		for _, obj := range i.indexer.List() {
			b.notifications = append(b.notifications, notification{eventType: watchcache.Added, object: obj})
		}
		l.add(b)
	}
	i.listeners = append(i.listeners, l)
	if i.ctx != nil {
		i.runListener(l)
	}
	return l, nil
}

// RemoveEventHandler implements cache.SharedInformer.
func (i *informer) RemoveEventHandler(handle cache.ResourceEventHandlerRegistration) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	for n, l := range i.listeners {
		if l == handle {
			i.listeners = append(i.listeners[:n:n], i.listeners[n+1:]...)
			close(l.removed)
			if i.ctx == nil {
				close(l.ended)
			}
			break
		}
	}
	return nil
}

// AddEventHandler implements cache.SharedInformer.
func (i *informer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(handler, cache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (i *informer) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, _ time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(handler, cache.HandlerOptions{})
}

// Run implements cache.SharedInformer.
func (i *informer) Run(stop <-chan struct{}) {
	i.RunWithContext(wait.ContextForChannel(stop))
}

// GetStore implements cache.SharedInformer.
func (i *informer) GetStore() cache.Store { return i.indexer }

// GetIndexer implements cache.SharedIndexInformer.
func (i *informer) GetIndexer() cache.Indexer { return i.indexer }

// AddIndexers implements cache.SharedIndexInformer.
func (i *informer) AddIndexers(indexers cache.Indexers) error { return i.indexer.AddIndexers(indexers) }

// GetController implements cache.SharedInformer, where it is deprecated.
func (i *informer) GetController() cache.Controller { return i }

// HasSynced implements cache.SharedInformer.
func (i *informer) HasSynced() bool { return cache.IsDone(i.HasSyncedChecker()) }

// HasSyncedChecker implements cache.SharedInformer.
func (i *informer) HasSyncedChecker() cache.DoneChecker {
	return doneChecker{"informer of " + i.view.kind.Resource().Plural, i.synced}
}

// LastSyncResourceVersion implements cache.SharedInformer.
func (i *informer) LastSyncResourceVersion() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return strconv.FormatInt(i.revision, 10)
}

// SetWatchErrorHandler implements cache.SharedInformer. It does nothing, because there
// are no watch errors.
func (i *informer) SetWatchErrorHandler(cache.WatchErrorHandler) error { return nil }

// SetWatchErrorHandlerWithContext implements cache.SharedInformer. It does nothing.
func (i *informer) SetWatchErrorHandlerWithContext(cache.WatchErrorHandlerWithContext) error {
	return nil
}

// SetTransform implements cache.SharedInformer. It always returns an error.
func (i *informer) SetTransform(cache.TransformFunc) error {
	return errors.New("cannot transform objects that are shared with the watch cache")
}

// IsStopped implements cache.SharedInformer.
func (i *informer) IsStopped() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.stopped
}
