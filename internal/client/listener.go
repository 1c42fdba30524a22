package client

import (
	"context"
	"sync"

	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/supervise"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// notice is one thing that a handler is told.
type notice struct {
	what   watchcache.EventType
	object any
	old    any // for Modified
}

// delivery is what came at once. Listeners share it and do not change it. An
// initial one holds what was there when the listener began.
type delivery struct {
	notices []notice
	initial bool
}

// listener tells one handler what it is given, however long the handler takes.
type listener struct {
	handler cache.ResourceEventHandler
	synced  chan struct{} // closed after the initial delivery
	awake   chan struct{} // there is something to do
	gone    chan struct{} // closed when the handler is no longer wanted
	ended   chan struct{} // closed when the handler is called no more

	mu      sync.Mutex // guards waiting
	waiting []delivery
}

func newListener(handler cache.ResourceEventHandler) *listener {
	return &listener{handler: handler, synced: make(chan struct{}), awake: make(chan struct{}, 1), gone: make(chan struct{}), ended: make(chan struct{})}
}

// add gives the listener a delivery. It does not wait.
func (l *listener) add(b delivery) {
	l.mu.Lock()
	l.waiting = append(l.waiting, b)
	l.mu.Unlock()
	select {
	case l.awake <- struct{}{}:
	default:
	}
}

// dismiss ends the listener after the call that its handler is in.
func (l *listener) dismiss() { close(l.gone) }

// run tells the handler until ctx ends or the listener is dismissed.
func (l *listener) run(ctx context.Context) {
	defer close(l.ended)
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.gone:
			return
		case <-l.awake:
		}
		l.mu.Lock()
		deliveries := l.waiting
		l.waiting = nil
		l.mu.Unlock()
		for _, b := range deliveries {
			if !l.deliver(ctx, b) {
				return
			}
			if b.initial {
				close(l.synced)
			}
		}
	}
}

// deliver tells the handler all of a delivery, unless the listener is over. A
// panic is its component's to handle, by Subscribe; one that gets here must
// not end the informer that others use.
func (l *listener) deliver(ctx context.Context, b delivery) (all bool) {
	next := 0
	for next < len(b.notices) {
		if l.over(ctx) {
			return false
		}
		supervise.Note(ctx, supervise.Call(func() error {
			for next < len(b.notices) && !l.over(ctx) {
				n := b.notices[next]
				next++
				l.tell(n, b.initial)
			}
			return nil
		}))
	}
	return true
}

func (l *listener) over(ctx context.Context) bool {
	select {
	case <-l.gone:
		return true
	default:
		return ctx.Err() != nil
	}
}

func (l *listener) tell(n notice, initial bool) {
	switch n.what {
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
	return moment{"handler", l.synced}
}

// ShutdownChan is closed when the handler is called no more, for
// cache.ShutDownEventHandler.
func (l *listener) ShutdownChan() <-chan struct{} { return l.ended }

// moment implements cache.DoneChecker.
type moment struct {
	name string
	done chan struct{}
}

// Name implements cache.DoneChecker.
func (m moment) Name() string { return m.name }

// Done implements cache.DoneChecker.
func (m moment) Done() <-chan struct{} { return m.done }
