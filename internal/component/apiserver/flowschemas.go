package apiserver

import (
	"context"
	"fmt"

	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/apiserver/bootstrap"
	"github.com/coracle-io/coracle/internal/apiserver/fairness"
	"github.com/coracle-io/coracle/internal/apiserver/flowschemas"
	"github.com/coracle-io/coracle/internal/supervise"
)

// newFairness makes what divides this server's capacity among its clients;
// nil if that is turned off.
func (a *Server) newFairness() *fairness.Controller {
	f := a.flags
	if !f.PriorityAndFairness {
		return nil
	}
	return fairness.New(fairness.Config{
		Seats: f.MaxRequestsInFlight + f.MaxMutatingInFlight, Patience: f.RequestTimeout / 4,
		Clock: clock.RealClock{}, Metrics: a.metrics.Fairness,
	})
}

// followFlowSchemas classifies requests by the flow schemas and priority
// levels that there are, and returns what keeps both up to date until its
// context ends.
func (a *Server) followFlowSchemas() (keep func(context.Context) error) {
	w := flowschemas.Watcher{Cache: a.storage.cache, Managers: a.extensions.managers, Clock: clock.RealClock{}}
	if a.fairness != nil {
		w.Classify = a.fairness.Configure
		w.Tell()
	}
	return func(ctx context.Context) error {
		g, ctx := supervise.Together(ctx)
		g.Go(func() error { return w.Run(ctx) })
		g.Go(func() error {
			return bootstrap.KeepFlowControl(ctx, a.storage.objects(), bootstrap.CacheWriter{Cache: a.storage.cache, Clock: clock.RealClock{}})
		})
		if a.fairness != nil {
			g.Go(func() error { return a.fairness.Run(ctx) })
		}
		return g.Wait()
	}
}

// validateInFlight names what is wrong with the bounds of requests in flight.
func (f *Flags) validateInFlight() (errs []error) {
	if f.MaxRequestsInFlight < 0 {
		errs = append(errs, fmt.Errorf("--max-requests-inflight=%d: want 0 or more", f.MaxRequestsInFlight))
	}
	if f.MaxMutatingInFlight < 0 {
		errs = append(errs, fmt.Errorf("--max-mutating-requests-inflight=%d: want 0 or more", f.MaxMutatingInFlight))
	}
	if len(errs) == 0 && f.PriorityAndFairness && f.MaxRequestsInFlight+f.MaxMutatingInFlight == 0 {
		errs = append(errs, fmt.Errorf("--max-requests-inflight and --max-mutating-requests-inflight are both 0, which leaves --enable-priority-and-fairness nothing to divide: give one of them"))
	}
	return errs
}

// inFlight is a bound of requests in flight as the server takes it: a flag of
// 0 is no bound.
func inFlight(flag int) int {
	if flag == 0 {
		return -1
	}
	return flag
}
