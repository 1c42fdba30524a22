package bootstrap

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/apiserver/status"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// CacheWriter is a Writer that writes through the watch cache. It validates
// objects but runs no admission.
type CacheWriter struct {
	Cache *watchcache.Cache
	Clock clock.PassiveClock
}

func (w CacheWriter) kind(storagePath string) (*watchcache.Kind, error) {
	if k := w.Cache.At(storagePath); k != nil {
		return k, nil
	}
	return nil, fmt.Errorf("nothing is stored under %s", storagePath)
}

func (w CacheWriter) writer() registry.Writer {
	return registry.Writer{Managers: owner{w.Clock}, Clock: w.Clock}
}

// Create implements Writer.
func (w CacheWriter) Create(ctx context.Context, storagePath string, obj resource.Object) error {
	k, err := w.kind(storagePath)
	if err != nil {
		return err
	}
	return status.IgnoreRace(w.writer().Create(ctx, k, obj))
}

// Update implements Writer.
func (w CacheWriter) Update(ctx context.Context, storagePath string, obj, old resource.Object) error {
	k, err := w.kind(storagePath)
	if err != nil {
		return err
	}
	return status.IgnoreRace(w.writer().Update(ctx, k, old.GetNamespace(), old.GetName(), func(current resource.Object) (resource.Object, error) {
		if current.GetResourceVersion() != old.GetResourceVersion() {
			return nil, nil
		}
		k.Resource().Hub().Default(obj)
		return obj, nil
	}))
}

// Delete implements Writer.
func (w CacheWriter) Delete(ctx context.Context, storagePath string, old resource.Object) error {
	k, err := w.kind(storagePath)
	if err != nil {
		return err
	}
	return status.IgnoreRace(w.writer().Delete(ctx, k, old.GetNamespace(), old.GetName(), &metav1.Preconditions{
		UID: ptr.To(old.GetUID()), ResourceVersion: ptr.To(old.GetResourceVersion()),
	}))
}
