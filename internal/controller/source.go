package controller

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Source is an informer and what to do when one of its objects changes.
type Source struct {
	informer cache.SharedIndexInformer
	// handle is called in the order of the events, one at a time.
	handle func(old, new any)
}

// On makes a Source that calls changed for every addition (old is nil),
// update and deletion (new is nil; old is the last known state) of an object.
// changed must not block: it turns the event into keys for a Queue.
func On[T runtime.Object](informer cache.SharedIndexInformer, changed func(old, new T)) Source {
	cast := func(o any) (t T) {
		t, _ = o.(T)
		return t
	}
	return Source{informer: informer, handle: func(old, new any) { changed(cast(old), cast(new)) }}
}

// Reads makes a Source whose events nobody needs, but whose store must be
// filled before the controller starts.
func Reads(informer cache.SharedIndexInformer) Source { return Source{informer: informer} }

// Serve registers the sources, waits until their stores are filled and every
// initial event has been handled, then runs the tasks until ctx is done or
// one of them fails. Before it returns, every handler is removed and every
// task has ended. A panic in a handler or a task is a failure too.
func Serve(ctx context.Context, sources []Source, tasks ...func(context.Context) error) error {
	outside := ctx
	err := supervise.Run(ctx, func(ctx context.Context) error {
		var synced []cache.DoneChecker
		for _, s := range sources {
			if s.handle == nil {
				synced = append(synced, s.informer.HasSyncedChecker())
				continue
			}
			heard, err := client.Subscribe(ctx, s.informer, handler(s.handle))
			if err != nil {
				return err
			}
			synced = append(synced, heard)
		}
		if !cache.WaitFor(ctx, "", synced...) {
			return nil
		}
		group, ctx := supervise.Together(ctx)
		for _, task := range tasks {
			group.Go(func() error { return task(ctx) })
		}
		return group.Wait()
	})
	if outside.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// handler turns events into calls of handle.
func handler(handle func(old, new any)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { handle(nil, o) },
		UpdateFunc: handle,
		DeleteFunc: func(o any) {
			if tombstone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = tombstone.Obj
			}
			handle(o, nil)
		},
	}
}

// Index adds an index to an informer, as client.Index.
func (e *Env) Index(informer cache.SharedIndexInformer, name string, keys cache.IndexFunc) error {
	ctx := e.life
	if ctx == nil {
		ctx = context.Background()
	}
	return client.Index(ctx, informer, name, keys)
}
