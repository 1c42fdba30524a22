package bootstrap

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/supervise"
)

// maintenancePeriod is how often objects are restored.
const maintenancePeriod = time.Minute

// MaintainSystem restores every minute, until ctx ends, what the cluster's
// components need and users can delete: the system's namespaces, the
// authentication of aggregated API servers, and the start of the tracking of
// tokens in secrets. It retries failed writes the next time. It calls options
// every time, because the authorities change when their files do.
func MaintainSystem(ctx context.Context, source objects.Source, w Writer, options func() Options) error {
	return maintain(ctx, "namespaces and ConfigMaps of the system", func() error {
		authentication, err := authenticationConfig(options())
		if err != nil {
			return err
		}
		return ensure(ctx, source, w, append(namespaces(), authentication, tokenTracking(time.Now())))
	})
}

// maintain calls ensure at once and every minute, until ctx ends. It logs
// errors; what names the objects.
func maintain(ctx context.Context, what string, ensure func() error) error {
	supervise.Repeat(ctx, maintenancePeriod, func() {
		if err := ensure(); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot restore the default "+what+", will try again", "in", maintenancePeriod)
		}
	})
	return nil
}
