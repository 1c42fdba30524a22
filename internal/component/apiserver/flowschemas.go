package apiserver

import (
	"context"

	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/apiserver/bootstrap"
	"github.com/coracle-io/coracle/internal/apiserver/flowschemas"
	"github.com/coracle-io/coracle/internal/supervise"
)

// followFlowSchemas configures priority and fairness from the existing flow
// schemas and priority levels. The returned function keeps it up to date until
// its context ends.
func (a *Server) followFlowSchemas() (keep func(context.Context) error) {
	w := flowschemas.Watcher{Cache: a.storage.cache, Managers: a.extensions.managers, Clock: clock.RealClock{}}
	fairness := a.server.Fairness()
	if fairness != nil {
		w.Classify = fairness.Configure
		w.Notify()
	}
	return func(ctx context.Context) error {
		g, ctx := supervise.WithContext(ctx)
		g.Go(func() error { return w.Run(ctx) })
		g.Go(func() error {
			return bootstrap.MaintainFlowControl(ctx, a.storage.objects(), bootstrap.CacheWriter{Cache: a.storage.cache, Clock: clock.RealClock{}})
		})
		if fairness != nil {
			g.Go(func() error { return fairness.Run(ctx) })
		}
		return g.Wait()
	}
}
