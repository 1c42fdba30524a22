package admission

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// CacheQuotas updates quotas through the watch cache.
type CacheQuotas struct{ Cache *watchcache.Cache }

// Update implements QuotaUpdater.
func (c CacheQuotas) Update(ctx context.Context, namespace, name string, next func(*corev1.ResourceQuota) (*corev1.ResourceQuota, error)) error {
	w := registry.Writer{Clock: clock.RealClock{}}
	return w.UpdateUnchecked(ctx, c.Cache.At(objects.ResourceQuotas), namespace, name, func(current resource.Object) (resource.Object, error) {
		q, ok := current.(*corev1.ResourceQuota)
		if !ok {
			return nil, fmt.Errorf("resource quota %s/%s is stored as a %T", namespace, name, current)
		}
		changed, err := next(q)
		if err != nil || changed == nil {
			return nil, err
		}
		return changed, nil
	})
}
