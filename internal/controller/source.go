package controller

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Source is an informer and an optional handler for its events.
type Source struct {
	informer cache.SharedIndexInformer
	// handle is called sequentially, in the order of the events.
	handle func(old, new any)
}

// On returns a Source that calls changed for every addition (old is nil),
// update and deletion (new is nil, old is the last known state) of an object.
// An object that has replaced another one of the same name is a deletion and an
// addition, also if the informer has missed the deletion. changed must not block.
// It usually adds keys to a Queue.
func On[T runtime.Object](informer cache.SharedIndexInformer, changed func(old, new T)) Source {
	cast := func(o any) (t T) {
		t, _ = o.(T)
		return t
	}
	return Source{informer: informer, handle: func(old, new any) { changed(cast(old), cast(new)) }}
}

// Reads returns a Source without a handler. Serve waits for its informer to
// sync.
func Reads(informer cache.SharedIndexInformer) Source { return Source{informer: informer} }

// Serve registers the handlers of the sources and waits until the informers
// have synced and the handlers have processed the initial events. It then runs
// the tasks until ctx is done or one of them fails. When Serve returns, all
// handlers have been removed and all tasks have ended. A panic in a handler or
// a task is a failure.
func Serve(ctx context.Context, sources []Source, tasks ...func(context.Context) error) error {
	parent := ctx
	err := supervise.Run(ctx, func(ctx context.Context) error {
		var synced []cache.DoneChecker
		for _, s := range sources {
			if s.handle == nil {
				synced = append(synced, s.informer.HasSyncedChecker())
				continue
			}
			handled, err := client.Subscribe(ctx, s.informer, handler(s.handle))
			if err != nil {
				return err
			}
			synced = append(synced, handled)
		}
		if !cache.WaitFor(ctx, "", synced...) {
			return nil
		}
		group, ctx := supervise.WithContext(ctx)
		for _, task := range tasks {
			group.Go(func() error { return task(ctx) })
		}
		return group.Wait()
	})
	if parent.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// handler returns an event handler that calls handle.
func handler(handle func(old, new any)) cache.ResourceEventHandler {
	update := func(old, new any) {
		if client.Replaced(old, new) {
			handle(old, nil)
			handle(nil, new)
			return
		}
		handle(old, new)
	}
	return client.Handler(func(o any) { handle(nil, o) }, update, func(o any) { handle(o, nil) })
}

// Index adds an index to an informer; see client.Index.
func (e *Env) Index(informer cache.SharedIndexInformer, name string, keys cache.IndexFunc) error {
	ctx := e.ctx
	if ctx == nil {
		ctx = context.Background()
	}
	return client.Index(ctx, informer, name, keys)
}
