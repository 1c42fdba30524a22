package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/client"
)

// Restart back-off of a controller that failed: it doubles from the first to
// the last, and starts over when an instance has lived longer than the last.
const (
	firstRestart = time.Second
	lastRestart  = time.Minute
)

// Runner runs a set of controllers.
type Runner struct {
	Provider client.Provider
	// Controllers are run in no particular order, all at once.
	Controllers []Descriptor
	Options     *Options
	// Informers bounds the life of the shared informers that the controllers
	// start. It is the context of the process, not of a leadership: others
	// may be reading the same informers when this Runner has to stop.
	Informers context.Context
}

// Run runs the controllers until ctx is done and returns when all have
// ended. A controller that fails is restarted with a back-off; the others do
// not notice. An error means that nothing was run.
func (r *Runner) Run(ctx context.Context) error {
	chosen, err := Select(r.Controllers, r.Options.Controllers)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	for _, d := range chosen {
		user, groups := d.identity()
		c, err := r.Provider.As(user, groups...)
		if err != nil {
			return fmt.Errorf("getting the identity %s for controller %s: %w", user, d.Name, err)
		}
		running.Go(func() { r.keep(ctx, d, c) })
	}
	<-ctx.Done()
	return nil
}

// keep runs one controller again and again until ctx is done.
func (r *Runner) keep(ctx context.Context, d Descriptor, c *client.Client) {
	log := klog.FromContext(ctx).WithName(d.Name)
	ctx = klog.NewContext(ctx, log)
	broadcaster := record.NewBroadcaster(record.WithContext(context.WithoutCancel(ctx)))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: c.Kubernetes.CoreV1().Events("")})
	defer broadcaster.Shutdown()
	env := &Env{
		Client:         c,
		Events:         broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: d.EventSource}),
		Options:        r.Options,
		StartInformers: func() { c.Informers.Start(r.Informers.Done()) },
	}
	delay := firstRestart
	for ctx.Err() == nil {
		started := time.Now()
		log.V(1).Info("Starting controller")
		err := Recover(ctx, func(ctx context.Context) error {
			controller, err := d.New(env)
			if err != nil {
				return err
			}
			return controller.Run(ctx)
		})
		if ctx.Err() != nil {
			break
		}
		if err == nil {
			err = errors.New("it returned without being asked to")
		}
		if time.Since(started) > lastRestart {
			delay = firstRestart
		}
		log.Error(err, "Controller failed, starting it again", "after", delay)
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
		delay = min(2*delay, lastRestart)
	}
	log.V(1).Info("Controller stopped")
}
