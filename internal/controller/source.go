package controller

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
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
// task has ended. A panic in a handler is a failure too.
func Serve(ctx context.Context, env *Env, sources []Source, tasks ...func(context.Context) error) error {
	outside := ctx
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)

	var synced []cache.DoneChecker
	var undo []func() error
	defer func() {
		for _, f := range undo {
			_ = f()
		}
	}()
	for _, s := range sources {
		if s.handle == nil {
			synced = append(synced, s.informer.HasSyncedChecker())
			continue
		}
		registration, err := s.informer.AddEventHandler(guarded(s.handle, fail))
		if err != nil {
			return fmt.Errorf("watching: %w", err)
		}
		undo = append(undo, func() error { return cache.ShutDownEventHandler(s.informer, registration) })
		synced = append(synced, registration.HasSyncedChecker())
	}
	env.StartInformers()
	if cache.WaitFor(ctx, "", synced...) {
		group, ctx := errgroup.WithContext(ctx)
		for _, task := range tasks {
			group.Go(func() error { return Recover(ctx, task) })
		}
		if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	if outside.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

// Recover runs f and returns a panic of it as an error with the stack.
func Recover(ctx context.Context, f func(context.Context) error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return f(ctx)
}

// guarded hands events to handle and reports a panic of it to fail.
func guarded(handle func(old, new any), fail context.CancelCauseFunc) cache.ResourceEventHandler {
	call := func(old, new any) {
		defer func() {
			if r := recover(); r != nil {
				fail(fmt.Errorf("panic in an event handler: %v\n%s", r, debug.Stack()))
			}
		}()
		handle(old, new)
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { call(nil, o) },
		UpdateFunc: call,
		DeleteFunc: func(o any) {
			if tombstone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = tombstone.Obj
			}
			call(o, nil)
		},
	}
}

// Index adds an index to an informer unless one of that name is there
// already, which then must be the same index added by another controller.
func Index(informer cache.SharedIndexInformer, name string, keys cache.IndexFunc) error {
	has := func() bool { _, ok := informer.GetIndexer().GetIndexers()[name]; return ok }
	if has() {
		return nil
	}
	if err := informer.AddIndexers(cache.Indexers{name: keys}); err != nil && !has() {
		return fmt.Errorf("indexing by %s: %w", name, err)
	}
	return nil
}
