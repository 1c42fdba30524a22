package client

import (
	"context"
	"sync"

	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/supervise"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// notification is one call of a handler.
type notification struct {
	eventType watchcache.EventType
	object    any
	old       any // for Modified
}

// eventBatch is a list of notifications. Listeners share it and must not change it. The initial
// batch contains the objects that existed when the listener was added.
type eventBatch struct {
	notifications []notification
	initial       bool
}

// listener calls one handler. Its queue is unbounded, so that a slow handler does not
// delay others.
type listener struct {
	handler cache.ResourceEventHandler
	synced  chan struct{} // closed after the initial batch
	wake    chan struct{} // receives if pending is not empty
	removed chan struct{} // closed by RemoveEventHandler
	ended   chan struct{} // closed after the last call of the handler

	mu      sync.Mutex // guards pending
	pending []eventBatch
}

func newListener(handler cache.ResourceEventHandler) *listener {
	return &listener{handler: handler, synced: make(chan struct{}), wake: make(chan struct{}, 1), removed: make(chan struct{}), ended: make(chan struct{})}
}

// add adds a batch to the queue. It does not block.
func (l *listener) add(b eventBatch) {
	l.mu.Lock()
	l.pending = append(l.pending, b)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run calls the handler until ctx is done or the handler is removed.
func (l *listener) run(ctx context.Context) {
	defer close(l.ended)
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.removed:
			return
		case <-l.wake:
		}
		l.mu.Lock()
		batches := l.pending
		l.pending = nil
		l.mu.Unlock()
		for _, b := range batches {
			if !l.deliver(ctx, b) {
				return
			}
			if b.initial {
				close(l.synced)
			}
		}
	}
}

// deliver calls the handler for a batch. It returns false if ctx is done or the handler is
// removed. Handlers added by Subscribe recover from panics themselves. A panic of another
// handler is logged and counted, and does not end the informer.
func (l *listener) deliver(ctx context.Context, b eventBatch) (all bool) {
	next := 0
	for next < len(b.notifications) {
		if l.stopped(ctx) {
			return false
		}
		supervise.RecordPanic(ctx, supervise.Call(func() error {
			for next < len(b.notifications) && !l.stopped(ctx) {
				n := b.notifications[next]
				next++
				l.call(n, b.initial)
			}
			return nil
		}))
	}
	return true
}

func (l *listener) stopped(ctx context.Context) bool {
	select {
	case <-l.removed:
		return true
	default:
		return ctx.Err() != nil
	}
}

func (l *listener) call(n notification, initial bool) {
	switch n.eventType {
	case watchcache.Added:
		l.handler.OnAdd(n.object, initial)
	case watchcache.Modified:
		l.handler.OnUpdate(n.old, n.object)
	case watchcache.Deleted:
		l.handler.OnDelete(n.object)
	}
}

// HasSynced implements cache.ResourceEventHandlerRegistration.
func (l *listener) HasSynced() bool { return cache.IsDone(l.HasSyncedChecker()) }

// HasSyncedChecker implements cache.ResourceEventHandlerRegistration.
func (l *listener) HasSyncedChecker() cache.DoneChecker {
	return doneChecker{"handler", l.synced}
}

// ShutdownChan returns a channel that is closed after the last call of the handler. It is
// used by cache.ShutDownEventHandler.
func (l *listener) ShutdownChan() <-chan struct{} { return l.ended }

// doneChecker implements cache.DoneChecker.
type doneChecker struct {
	name string
	done chan struct{}
}

// Name implements cache.DoneChecker.
func (d doneChecker) Name() string { return d.name }

// Done implements cache.DoneChecker.
func (d doneChecker) Done() <-chan struct{} { return d.done }
