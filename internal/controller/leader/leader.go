// Package leader runs leader election, so that only one of several instances of
// a component is active.
package leader

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	componentbaseconfig "k8s.io/component-base/config/v1alpha1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/health"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Options configure leader election for one instance of a component.
type Options struct {
	// Configuration has the values of the --leader-elect flags. LeaderElect is
	// not nil.
	Configuration componentbaseconfig.LeaderElectionConfiguration
	// Identity identifies this instance. The default is the host name with a
	// random suffix.
	Identity string
	// Observe, if set, is called with the name of the lease whenever this
	// instance starts or stops leading, and with false at the start.
	Observe func(lease string, leads bool)
	// health, if set, watches whether this instance renews the lease while it leads.
	health *leaderelection.HealthzAdaptor
}

// healthTolerance is how long after the end of its lease a leader that could not
// renew it counts as healthy. It is upstream's.
const healthTolerance = 20 * time.Second

// AddHealth returns a check, by upstream's name, of the leadership. It fails if this
// instance leads and has not renewed the lease. Without an election there is none.
func (o *Options) AddHealth() []health.Check {
	if !*o.Configuration.LeaderElect {
		return nil
	}
	h := leaderelection.NewLeaderHealthzAdaptor(healthTolerance)
	o.health = h
	return []health.Check{{Name: h.Name(), Run: func(context.Context) error { return h.Check(nil) }}}
}

// DefaultConfiguration returns upstream's defaults for a component. The lock is
// the Lease in kube-system with the component's name.
func DefaultConfiguration(component string) componentbaseconfig.LeaderElectionConfiguration {
	return componentbaseconfig.LeaderElectionConfiguration{
		LeaderElect:       new(true),
		LeaseDuration:     metav1.Duration{Duration: 15 * time.Second},
		RenewDeadline:     metav1.Duration{Duration: 10 * time.Second},
		RetryPeriod:       metav1.Duration{Duration: 2 * time.Second},
		ResourceLock:      resourcelock.LeasesResourceLock,
		ResourceName:      component,
		ResourceNamespace: "kube-system",
	}
}

// Validate returns an error if a value is invalid. It names the flags.
func Validate(c *componentbaseconfig.LeaderElectionConfiguration) error {
	if !*c.LeaderElect {
		return nil
	}
	var errs []error
	duration, deadline, period := c.LeaseDuration.Duration, c.RenewDeadline.Duration, c.RetryPeriod.Duration
	if duration <= deadline {
		errs = append(errs, fmt.Errorf("--leader-elect-lease-duration=%v must be greater than --leader-elect-renew-deadline=%v", duration, deadline))
	}
	if least := time.Duration(leaderelection.JitterFactor * float64(period)); deadline <= least || period <= 0 {
		errs = append(errs, fmt.Errorf("--leader-elect-renew-deadline=%v must be greater than --leader-elect-retry-period=%v times %v, and that greater than 0", deadline, period, leaderelection.JitterFactor))
	}
	if c.ResourceLock != resourcelock.LeasesResourceLock {
		errs = append(errs, fmt.Errorf("--leader-elect-resource-lock=%s is not supported, use %s", c.ResourceLock, resourcelock.LeasesResourceLock))
	}
	return errors.Join(errs...)
}

// Run calls work while this instance is the leader. When leadership is lost,
// Run cancels work's context, waits for work to return and tries to become the
// leader again. When ctx is done, Run releases the lease after work has
// returned, so that two instances are never active at once. Run returns nil
// when ctx is done, and an error if work fails or panics.
func Run(ctx context.Context, o Options, kube kubernetes.Interface, work func(context.Context) error) error {
	c := &o.Configuration
	if !*c.LeaderElect {
		return work(ctx)
	}
	identity := o.Identity
	if identity == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("naming this instance for leader election: %w", err)
		}
		identity = host + "_" + string(uuid.NewUUID())
	}
	if o.Observe == nil {
		o.Observe = func(string, bool) {}
	}
	o.Observe(c.ResourceName, false)
	lock, err := resourcelock.New(c.ResourceLock, c.ResourceNamespace, c.ResourceName, kube.CoreV1(), kube.CoordinationV1(),
		resourcelock.ResourceLockConfig{Identity: identity})
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		t := term{work: work, done: make(chan error, 1)}
		if err := t.run(ctx, o, lock); err != nil {
			return err
		}
	}
	return nil
}

// term is one attempt to lead: acquire the lease, call work, release the lease.
type term struct {
	work func(context.Context) error
	done chan error

	// mu guards leading, which decides who ends the election when ctx is done:
	// the AfterFunc in run if work has not started, otherwise lead once work has
	// returned.
	mu      sync.Mutex
	leading bool
}

func (t *term) run(ctx context.Context, o Options, lock resourcelock.Interface) error {
	// The election outlives ctx until work has returned.
	election, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	stop := context.AfterFunc(ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if !t.leading {
			end()
		}
	})
	defer stop()
	c := &o.Configuration
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            lock,
		LeaseDuration:   c.LeaseDuration.Duration,
		RenewDeadline:   c.RenewDeadline.Duration,
		RetryPeriod:     c.RetryPeriod.Duration,
		ReleaseOnCancel: true,
		Name:            c.ResourceName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(led context.Context) {
				o.Observe(c.ResourceName, true)
				t.lead(ctx, led, end)
			},
			OnStoppedLeading: func() { o.Observe(c.ResourceName, false) },
			OnNewLeader: func(identity string) {
				klog.FromContext(ctx).V(1).Info("Leader observed", "lease", c.ResourceName, "leader", identity)
			},
		},
	})
	if err != nil {
		return fmt.Errorf("leader election: %w", err)
	}
	if o.health != nil {
		o.health.SetLeaderElection(elector)
	}
	elector.Run(election)
	// The elector calls lead in its own goroutine once it has acquired the
	// lease. If it never did, the AfterFunc has ended the election.
	t.mu.Lock()
	leading := t.leading
	t.mu.Unlock()
	if !leading && ctx.Err() != nil {
		return nil
	}
	return <-t.done
}

func (t *term) lead(ctx, led context.Context, end context.CancelFunc) {
	defer end()
	t.mu.Lock()
	if ctx.Err() != nil {
		t.mu.Unlock()
		return
	}
	t.leading = true
	t.mu.Unlock()
	working, cancel := context.WithCancel(led)
	defer cancel()
	stop := context.AfterFunc(ctx, cancel)
	defer stop()
	t.done <- supervise.Run(working, t.work)
}
