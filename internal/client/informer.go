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

// informer is a cache.SharedIndexInformer of a view. It promises what
// client-go's does: a handler hears of every change in order, one at a time,
// and finds in the indexer what it heard of, or newer. But it costs less, for
// there is no wire to wait for and nothing to retry:
//
//	watch cache ── cursor: all that is new ──► indexer
//	                                  └──► one delivery, shared ──► listener ──► handler
//	                                                         └────► listener ──► handler
//
// Objects belong to the watch cache and must not be changed. There is no
// resync: what is here cannot have been missed.
type informer struct {
	view    *view
	indexer cache.Indexer
	synced  chan struct{} // closed once the indexer holds the first list

	mu        sync.Mutex // guards the rest, and orders deliveries as the indexer's changes
	running   context.Context
	listeners []*listener
	working   sync.WaitGroup // the listeners' goroutines
	stopped   bool
	revision  int64 // of the last delivery
}

var _ cache.SharedIndexInformer = (*informer)(nil)

// newInformer makes an informer that does not run yet.
func newInformer(v *view) *informer {
	return &informer{
		view:    v,
		indexer: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
		synced:  make(chan struct{}),
	}
}

// RunWithContext follows the view until ctx ends, and returns once no handler
// is called any more.
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
		err := supervise.Call(func() error { return i.session(ctx) })
		if panicked := (*supervise.Panic)(nil); errors.As(err, &panicked) { // in an index function, say
			supervise.Note(ctx, err)
			select {
			case <-ctx.Done():
			case <-time.After(retryAfter):
			}
		}
	}
}

// retryAfter is how long an informer waits after a panic before it lists again.
const retryAfter = 100 * time.Millisecond

// session lists, and follows the view until ctx ends or the informer has
// become too slow.
func (i *informer) session(ctx context.Context) error {
	objects, revision := i.view.list()
	i.replace(objects, revision)
	err := i.follow(ctx, revision)
	if errors.Is(err, watchcache.ErrRemoved) {
		i.replace(nil, revision)
	}
	if !errors.Is(err, store.ErrCompacted) {
		<-ctx.Done()
	}
	return err
}

// start begins the work of the listeners. It happens once.
func (i *informer) start(ctx context.Context) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.running != nil || i.stopped {
		return false
	}
	i.running = ctx
	for _, l := range i.listeners {
		i.employ(l)
	}
	return true
}

// employ starts a listener. The caller holds the mutex.
func (i *informer) employ(l *listener) {
	ctx := i.running
	i.working.Go(func() { l.run(ctx) })
}

func (i *informer) stop() {
	i.mu.Lock()
	i.stopped = true
	i.mu.Unlock()
	i.working.Wait()
}

// follow hands on what happens after a revision, until its cursor fails.
func (i *informer) follow(ctx context.Context, after int64) error {
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

// apply brings events into the indexer and to the handlers.
func (i *informer) apply(events []*watchcache.Event) {
	b := delivery{notices: make([]notice, 0, len(events))}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, e := range events {
		what, _ := i.view.selected.Seen(e)
		if what == 0 {
			continue
		}
		b.notices = append(b.notices, i.index(what, i.view.version.FromHub(e.Entry.Object)))
	}
	if len(b.notices) > 0 {
		i.revision = events[len(events)-1].Revision
		i.deliver(b)
	}
}

// replace makes the indexer hold these objects and no others, and tells of the
// differences. The first time ends the listeners' initial lists.
func (i *informer) replace(objects []runtime.Object, revision int64) {
	b := delivery{initial: !i.HasSynced()}
	i.mu.Lock()
	defer i.mu.Unlock()
	kept := make(map[string]bool, len(objects))
	for _, obj := range objects {
		key, _ := cache.MetaNamespaceKeyFunc(obj)
		kept[key] = true
		if old, ok, _ := i.indexer.GetByKey(key); !ok {
			b.notices = append(b.notices, i.index(watchcache.Added, obj))
		} else if old != obj {
			b.notices = append(b.notices, i.index(watchcache.Modified, obj))
		}
	}
	for _, key := range i.indexer.ListKeys() {
		if kept[key] {
			continue
		}
		old, _, _ := i.indexer.GetByKey(key)
		n := i.index(watchcache.Deleted, old.(runtime.Object))
		n.object = cache.DeletedFinalStateUnknown{Key: key, Obj: old}
		b.notices = append(b.notices, n)
	}
	i.revision = revision
	i.deliver(b)
	if b.initial {
		close(i.synced)
	}
}

// index changes the indexer by one object and says what to tell of it. The
// indexer's errors are those of its key function, which knows every object.
func (i *informer) index(what watchcache.EventType, obj runtime.Object) notice {
	n := notice{what: what, object: obj}
	switch what {
	case watchcache.Deleted:
		_ = i.indexer.Delete(obj)
	case watchcache.Modified:
		n.old, _, _ = i.indexer.Get(obj)
		_ = i.indexer.Update(obj)
	default:
		_ = i.indexer.Add(obj)
	}
	return n
}

// deliver gives the same to every listener. The caller holds the mutex.
func (i *informer) deliver(b delivery) {
	for _, l := range i.listeners {
		l.add(b)
	}
}

// AddEventHandlerWithOptions implements cache.SharedInformer. A handler that
// comes while the informer runs is first told of every object that is there.
func (i *informer) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, _ cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stopped {
		return nil, errors.New("the informer has stopped: no handler can be added")
	}
	l := newListener(handler)
	if i.HasSynced() {
		b := delivery{initial: true}
		for _, obj := range i.indexer.List() {
			b.notices = append(b.notices, notice{what: watchcache.Added, object: obj})
		}
		l.add(b)
	}
	i.listeners = append(i.listeners, l)
	if i.running != nil {
		i.employ(l)
	}
	return l, nil
}

// RemoveEventHandler implements cache.SharedInformer.
func (i *informer) RemoveEventHandler(handle cache.ResourceEventHandlerRegistration) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	for at, l := range i.listeners {
		if l == handle {
			i.listeners = append(i.listeners[:at:at], i.listeners[at+1:]...)
			l.dismiss()
			if i.running == nil {
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
	return moment{"informer of " + i.view.kind.Resource().Plural, i.synced}
}

// LastSyncResourceVersion implements cache.SharedInformer.
func (i *informer) LastSyncResourceVersion() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return strconv.FormatInt(i.revision, 10)
}

// SetWatchErrorHandler implements cache.SharedInformer: there are no errors.
func (i *informer) SetWatchErrorHandler(cache.WatchErrorHandler) error { return nil }

// SetWatchErrorHandlerWithContext implements cache.SharedInformer.
func (i *informer) SetWatchErrorHandlerWithContext(cache.WatchErrorHandlerWithContext) error {
	return nil
}

// SetTransform implements cache.SharedInformer, but refuses.
func (i *informer) SetTransform(cache.TransformFunc) error {
	return errors.New("the informer's objects are shared with the whole process: they cannot be transformed")
}

// IsStopped implements cache.SharedInformer.
func (i *informer) IsStopped() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.stopped
}
