package client

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/supervise"
)

// Subscribe lets a handler of the component that ctx belongs to hear what a
// shared informer knows, and then of every change, until ctx ends. The
// component does not end before the handler's last call has returned. A panic
// of the handler ends the instance of the component, and not the informer.
// The checker is done when the handler has heard what there was at first.
func Subscribe(ctx context.Context, informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) (cache.DoneChecker, error) {
	registration, err := informer.AddEventHandler(guarded{ctx, handler})
	if err != nil {
		return nil, fmt.Errorf("subscribe to an informer: %w", err)
	}
	supervise.Go(ctx, func() {
		<-ctx.Done()
		unsubscribe(informer, registration)
	})
	return registration.HasSyncedChecker(), nil
}

// lastCall is how long a handler that is no longer wanted may take. One of
// an informer that never ran has no last call to wait for.
const lastCall = 5 * time.Second

// unsubscribe removes a handler and waits for its last call. An informer that
// has ended has removed it already.
func unsubscribe(informer cache.SharedIndexInformer, registration cache.ResourceEventHandlerRegistration) {
	_ = informer.RemoveEventHandler(registration)
	leaving, ok := registration.(interface{ ShutdownChan() <-chan struct{} })
	if !ok {
		return
	}
	late := time.NewTimer(lastCall)
	defer late.Stop()
	select {
	case <-leaving.ShutdownChan():
	case <-late.C:
	}
}

// Follow is Subscribe for an informer of the component's own, which it runs
// until ctx ends.
func Follow(ctx context.Context, informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) (cache.DoneChecker, error) {
	registration, err := informer.AddEventHandler(guarded{ctx, handler})
	if err != nil {
		return nil, fmt.Errorf("follow an informer: %w", err)
	}
	supervise.Go(ctx, func() { informer.RunWithContext(ctx) })
	return registration.HasSyncedChecker(), nil
}

// guarded is a handler whose panics are its component's.
type guarded struct {
	ctx     context.Context
	handler cache.ResourceEventHandler
}

// OnAdd implements cache.ResourceEventHandler.
func (g guarded) OnAdd(obj any, initial bool) {
	supervise.Guard(g.ctx, func() { g.handler.OnAdd(obj, initial) })
}

// OnUpdate implements cache.ResourceEventHandler.
func (g guarded) OnUpdate(old, obj any) {
	supervise.Guard(g.ctx, func() { g.handler.OnUpdate(old, obj) })
}

// OnDelete implements cache.ResourceEventHandler.
func (g guarded) OnDelete(obj any) {
	supervise.Guard(g.ctx, func() { g.handler.OnDelete(obj) })
}

// Index adds an index to an informer unless one of that name is there
// already, which then must be the same index, added by another user of the
// informer or by an earlier instance of this one. An object for which keys
// panics is not in the index, and the panic is counted for the component that
// ctx belongs to.
func Index(ctx context.Context, informer cache.SharedIndexInformer, name string, keys cache.IndexFunc) error {
	has := func() bool { _, ok := informer.GetIndexer().GetIndexers()[name]; return ok }
	if has() {
		return nil
	}
	careful := func(obj any) (found []string, err error) {
		panicked := supervise.Call(func() error {
			found, err = keys(obj)
			return nil
		})
		supervise.Note(ctx, panicked)
		return found, err
	}
	if err := informer.AddIndexers(cache.Indexers{name: careful}); err != nil && !has() {
		return fmt.Errorf("indexing by %s: %w", name, err)
	}
	return nil
}
