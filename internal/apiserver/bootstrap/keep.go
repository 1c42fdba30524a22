package bootstrap

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
)

// keepPeriod is how often the objects that are kept are looked at.
const keepPeriod = time.Minute

// KeepSystem puts back every minute, until ctx ends, what the cluster's own
// components need and users can delete: the namespaces of the system, how
// aggregated API servers are to authenticate clients, and since when the use
// of tokens in secrets is tracked. What could not be written is tried again
// the next time.
func KeepSystem(ctx context.Context, source objects.Source, w Writer, o Options) error {
	authentication, err := authenticationConfig(o)
	if err != nil {
		return err
	}
	return keep(ctx, "namespaces and ConfigMaps of the system", func() error {
		return ensure(ctx, source, w, append(namespaces(), authentication, tokenTracking(time.Now())))
	})
}

// keep calls ensure now and every minute, until ctx ends. what it keeps is
// named where it fails.
func keep(ctx context.Context, what string, ensure func() error) error {
	ticker := time.NewTicker(keepPeriod)
	defer ticker.Stop()
	for {
		if err := ensure(); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot keep the default "+what+", will try again", "in", keepPeriod)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
