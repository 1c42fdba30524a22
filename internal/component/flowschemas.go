package component

import (
	"context"

	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/apiserver/flowschemas"
)

// keepFlowSchemas keeps the statuses of FlowSchemas until ctx ends.
func (a *APIServer) keepFlowSchemas(ctx context.Context) error {
	w := flowschemas.Watcher{Cache: a.cache, Managers: a.managers, Clock: clock.RealClock{}}
	return w.Run(ctx)
}
