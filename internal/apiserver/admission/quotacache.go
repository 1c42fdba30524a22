package admission

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// CacheQuotas updates quotas through the watch cache.
type CacheQuotas struct{ Cache *watchcache.Cache }

func (c CacheQuotas) kind() *watchcache.Kind {
	return c.Cache.At(objects.ResourceQuotas)
}

// Update implements QuotaUpdater.
func (c CacheQuotas) Update(ctx context.Context, next, old *corev1.ResourceQuota) error {
	revision, err := strconv.ParseInt(old.ResourceVersion, 10, 64)
	if err != nil {
		return fmt.Errorf("resource quota %s/%s: resourceVersion: %w", old.Namespace, old.Name, err)
	}
	e := &watchcache.Entry{Object: old, Namespace: old.Namespace, Name: old.Name, Revision: revision}
	_, err = c.kind().Update(ctx, next, e)
	return err
}

// Read implements QuotaUpdater.
func (c CacheQuotas) Read(ctx context.Context, namespace, name string) (*corev1.ResourceQuota, error) {
	e, err := c.kind().Read(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	q, ok := e.Object.(*corev1.ResourceQuota)
	if !ok {
		return nil, fmt.Errorf("resource quota %s/%s is stored as a %T", namespace, name, e.Object)
	}
	return q, nil
}
