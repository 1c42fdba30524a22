package client

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/supervise"
)

// Subscribe adds a handler to a shared informer and removes it when ctx is done. The
// supervised component of ctx does not end before the handler's last call has returned. A
// panic of the handler fails the component but not the informer. The returned checker is
// done when the handler has processed the initial objects.
func Subscribe(ctx context.Context, informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) (cache.DoneChecker, error) {
	registration, err := informer.AddEventHandler(supervisedHandler{ctx, handler})
	if err != nil {
		return nil, fmt.Errorf("subscribe to an informer: %w", err)
	}
	supervise.Go(ctx, func() {
		<-ctx.Done()
		unsubscribe(informer, registration)
	})
	return registration.HasSyncedChecker(), nil
}

// unsubscribeTimeout is the maximum time to wait for the last call of a removed handler.
const unsubscribeTimeout = 5 * time.Second

// unsubscribe removes a handler and waits for its last call. A stopped informer has already
// removed it.
func unsubscribe(informer cache.SharedIndexInformer, registration cache.ResourceEventHandlerRegistration) {
	_ = informer.RemoveEventHandler(registration)
	removed, ok := registration.(interface{ ShutdownChan() <-chan struct{} })
	if !ok {
		return
	}
	timeout := time.NewTimer(unsubscribeTimeout)
	defer timeout.Stop()
	select {
	case <-removed.ShutdownChan():
	case <-timeout.C:
	}
}

// Follow is like Subscribe for an unshared informer, which it runs until ctx is done.
func Follow(ctx context.Context, informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) (cache.DoneChecker, error) {
	registration, err := informer.AddEventHandler(supervisedHandler{ctx, handler})
	if err != nil {
		return nil, fmt.Errorf("follow an informer: %w", err)
	}
	supervise.Go(ctx, func() { informer.RunWithContext(ctx) })
	return registration.HasSyncedChecker(), nil
}

// supervisedHandler is a handler whose panics fail the component of ctx.
type supervisedHandler struct {
	ctx     context.Context
	handler cache.ResourceEventHandler
}

// OnAdd implements cache.ResourceEventHandler.
func (g supervisedHandler) OnAdd(obj any, initial bool) {
	supervise.FailOnPanic(g.ctx, func() { g.handler.OnAdd(obj, initial) })
}

// OnUpdate implements cache.ResourceEventHandler.
func (g supervisedHandler) OnUpdate(old, obj any) {
	supervise.FailOnPanic(g.ctx, func() { g.handler.OnUpdate(old, obj) })
}

// OnDelete implements cache.ResourceEventHandler.
func (g supervisedHandler) OnDelete(obj any) {
	supervise.FailOnPanic(g.ctx, func() { g.handler.OnDelete(obj) })
}

// Index adds an index to an informer unless it already has an index with the name, which
// must be the same index. An object for which keys panics is not indexed, and the panic is
// counted for the supervised component of ctx.
func Index(ctx context.Context, informer cache.SharedIndexInformer, name string, keys cache.IndexFunc) error {
	has := func() bool { _, ok := informer.GetIndexer().GetIndexers()[name]; return ok }
	if has() {
		return nil
	}
	recovering := func(obj any) (found []string, err error) {
		panicked := supervise.Call(func() error {
			found, err = keys(obj)
			return nil
		})
		supervise.RecordPanic(ctx, panicked)
		return found, err
	}
	if err := informer.AddIndexers(cache.Indexers{name: recovering}); err != nil && !has() {
		return fmt.Errorf("indexing by %s: %w", name, err)
	}
	return nil
}
