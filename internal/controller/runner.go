package controller

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Runner runs a set of controllers.
type Runner struct {
	Provider client.Provider
	// Controllers are run in no particular order, all at once.
	Controllers []Descriptor
	// Enabled are the names of those that are run, as in --controllers; see
	// Select.
	Enabled []string
	// RootCA is handed to all controllers; see Env.
	RootCA []byte
}

// Run runs the controllers until ctx is done and returns when all have
// ended. A controller that fails is restarted with a back-off; the others do
// not notice. An error means that nothing was run.
func (r *Runner) Run(ctx context.Context) error {
	chosen, err := Select(r.Controllers, r.Enabled)
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
			supervise.Go(ctx, func() { r.keep(ctx, d, c) })
		}
		<-ctx.Done()
		return nil
	})
}

// keep runs one controller again and again until ctx is done.
func (r *Runner) keep(ctx context.Context, d Descriptor, c *client.Client) {
	log := klog.FromContext(ctx).WithName(d.Name)
	ctx = klog.NewContext(ctx, log)
	broadcaster := record.NewBroadcaster(record.WithContext(context.WithoutCancel(ctx)))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: c.Kubernetes.CoreV1().Events("")})
	defer broadcaster.Shutdown()
	events := broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: d.EventSource})
	supervise.Keep(ctx, d.Name, func(ctx context.Context) error {
		log.V(1).Info("Starting controller")
		controller, err := d.New(&Env{Client: c, Events: events, RootCA: r.RootCA, life: ctx})
		if err != nil {
			return err
		}
		return controller.Run(ctx)
	})
	log.V(1).Info("Controller stopped")
}
