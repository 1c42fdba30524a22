package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// CacheWriter writes default objects through the watch cache, before the
// server serves anybody. Validation applies, admission does not.
type CacheWriter struct {
	Cache *watchcache.Cache
	Clock clock.PassiveClock
}

func (w CacheWriter) kind(storagePath string) (*watchcache.Kind, *resource.Resource, error) {
	k := w.Cache.At(storagePath)
	if k == nil {
		return nil, nil, fmt.Errorf("nothing is stored under %s", storagePath)
	}
	return k, k.Resource(), nil
}

// Create implements Writer.
func (w CacheWriter) Create(ctx context.Context, storagePath string, obj resource.Object) error {
	k, r, err := w.kind(storagePath)
	if err != nil {
		return err
	}
	now := w.Clock.Now()
	hub := r.Hub()
	obj.GetObjectKind().SetGroupVersionKind(hub.WithKind(r.Kind))
	obj.SetUID(uuid.NewUUID())
	obj.SetCreationTimestamp(metav1.NewTime(now.Truncate(time.Second)))
	hub.Default(obj)
	if err := own(hub, obj, now); err != nil {
		return err
	}
	if errs := resource.BeforeCreate(r, &resource.Request{Now: now, Namespace: obj.GetNamespace()}, obj); len(errs) > 0 {
		return errs.ToAggregate()
	}
	if _, err = k.Create(ctx, obj); errors.Is(err, store.ErrExists) {
		return nil
	}
	return err
}

// Update implements Writer.
func (w CacheWriter) Update(ctx context.Context, storagePath string, obj, old resource.Object) error {
	k, r, err := w.kind(storagePath)
	if err != nil {
		return err
	}
	e, ok := k.Get(old.GetNamespace(), old.GetName())
	if !ok || e.Object != old {
		return nil
	}
	r.Hub().Default(obj)
	req := &resource.Request{Now: w.Clock.Now(), Namespace: obj.GetNamespace()}
	if errs := resource.BeforeUpdate(r, req, obj, old); len(errs) > 0 {
		return errs.ToAggregate()
	}
	_, err = k.Update(ctx, obj, e)
	return overtaken(err)
}

// Delete implements Writer.
func (w CacheWriter) Delete(ctx context.Context, storagePath string, old resource.Object) error {
	k, _, err := w.kind(storagePath)
	if err != nil {
		return err
	}
	e, ok := k.Get(old.GetNamespace(), old.GetName())
	if !ok || e.Object != old {
		return nil
	}
	_, err = k.Delete(ctx, e, nil)
	return overtaken(err)
}

// overtaken says that it is no error if another server was faster.
func overtaken(err error) error {
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}
