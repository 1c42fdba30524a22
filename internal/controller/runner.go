package controller

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/metrics"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Runner runs a set of controllers concurrently.
type Runner struct {
	Provider    client.Provider
	Controllers []Descriptor
	// Enabled is the value of --controllers; see Select.
	Enabled []string
	// RootCA, Queues, Metrics and Features are passed to every controller; see Env.
	RootCA   []byte
	Queues   *metrics.Queues
	Metrics  prometheus.Registerer
	Features *feature.Set
}

// Run runs the enabled controllers until ctx is done and returns when all have
// ended. A controller that fails is restarted with back-off; this does not
// affect the others. Run returns an error if Enabled is invalid or if Provider
// refuses an identity.
func (r *Runner) Run(ctx context.Context) error {
	chosen, err := Select(r.Controllers, r.Enabled)
	if err != nil {
		return err
	}
	running, err := newRunning(r.Metrics)
	if err != nil {
		return err
	}
	return supervise.Run(ctx, func(ctx context.Context) error {
		for _, d := range chosen {
			user, groups := d.identity()
			c, err := r.Provider.As(user, groups...)
			if err != nil {
				return fmt.Errorf("getting the identity %s for controller %s: %w", user, d.Name, err)
			}
			supervise.Go(ctx, func() { r.runController(ctx, d, c, running.WithLabelValues(d.Name, "kube-controller-manager")) })
		}
		<-ctx.Done()
		return nil
	})
}

// newRunning returns the metric of which controllers run, by upstream's name, and
// exposes it with r, which may be nil. An earlier Run may have exposed it.
func newRunning(r prometheus.Registerer) (*prometheus.GaugeVec, error) {
	running := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "running_managed_controllers", Help: "[BETA] Indicates where instances of a controller are currently running",
	}, []string{"name", "manager"})
	if r == nil {
		return running, nil
	}
	err := r.Register(running)
	if exposed := (prometheus.AlreadyRegisteredError{}); errors.As(err, &exposed) {
		if earlier, ok := exposed.ExistingCollector.(*prometheus.GaugeVec); ok {
			return earlier, nil
		}
	}
	return running, err
}

// runController runs instances of a controller until ctx is done. running is 1 while
// one runs.
func (r *Runner) runController(ctx context.Context, d Descriptor, c *client.Client, running prometheus.Gauge) {
	log := klog.FromContext(ctx).WithName(d.Name)
	ctx = klog.NewContext(ctx, log)
	events, shutdown := NewRecorder(ctx, c.Kubernetes, v1.EventSource{Component: d.EventSource})
	defer shutdown()
	supervise.KeepRunning(ctx, d.Name, func(ctx context.Context) error {
		log.V(1).Info("Starting controller")
		controller, err := d.New(&Env{Client: c, Events: events, RootCA: r.RootCA, Queues: r.Queues, Metrics: r.Metrics, Features: r.Features, ctx: ctx})
		if err != nil {
			return err
		}
		running.Set(1)
		defer running.Set(0)
		return controller.Run(ctx)
	})
	log.V(1).Info("Controller stopped")
}
