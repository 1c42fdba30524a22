// Package leader lets one of several instances of a component work at a time.
package leader

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/supervise"
)

// Options are the --leader-elect flags, with upstream's names and defaults.
type Options struct {
	LeaderElect       bool
	LeaseDuration     time.Duration
	RenewDeadline     time.Duration
	RetryPeriod       time.Duration
	ResourceLock      string
	ResourceName      string
	ResourceNamespace string
	// Identity tells the instances apart; empty is the host's name and a
	// random part. It has no flag.
	Identity string
	// Observe, if set, is told whether this instance leads: first that it does
	// not. It has no flag.
	Observe func(lease string, leads bool)
}

// DefaultOptions are the defaults for a component, whose lock is the Lease of
// that name in kube-system.
func DefaultOptions(component string) Options {
	return Options{
		LeaderElect:       true,
		LeaseDuration:     15 * time.Second,
		RenewDeadline:     10 * time.Second,
		RetryPeriod:       2 * time.Second,
		ResourceLock:      resourcelock.LeasesResourceLock,
		ResourceName:      component,
		ResourceNamespace: "kube-system",
	}
}

// AddFlags adds the flags, with the present values as defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect, "Start a leader election client and gain leadership before executing the main loop. Enable this when running replicated components for high availability.")
	fs.DurationVar(&o.LeaseDuration, "leader-elect-lease-duration", o.LeaseDuration, "The duration that non-leader candidates will wait after observing a leadership renewal until attempting to acquire leadership of a led but unrenewed leader slot.")
	fs.DurationVar(&o.RenewDeadline, "leader-elect-renew-deadline", o.RenewDeadline, "The interval between attempts by the acting leader to renew a leadership slot before it stops leading. This must be less than the lease duration.")
	fs.DurationVar(&o.RetryPeriod, "leader-elect-retry-period", o.RetryPeriod, "The duration the clients should wait between attempting acquisition and renewal of a leadership.")
	fs.StringVar(&o.ResourceLock, "leader-elect-resource-lock", o.ResourceLock, "The type of resource object that is used for locking during leader election. Only 'leases' is supported.")
	fs.StringVar(&o.ResourceName, "leader-elect-resource-name", o.ResourceName, "The name of resource object that is used for locking during leader election.")
	fs.StringVar(&o.ResourceNamespace, "leader-elect-resource-namespace", o.ResourceNamespace, "The namespace of resource object that is used for locking during leader election.")
}

// Validate reports what is wrong with the flags.
func (o *Options) Validate() error {
	if !o.LeaderElect {
		return nil
	}
	var errs []error
	if o.LeaseDuration <= o.RenewDeadline {
		errs = append(errs, fmt.Errorf("--leader-elect-lease-duration=%v must be greater than --leader-elect-renew-deadline=%v", o.LeaseDuration, o.RenewDeadline))
	}
	if least := time.Duration(leaderelection.JitterFactor * float64(o.RetryPeriod)); o.RenewDeadline <= least || o.RetryPeriod <= 0 {
		errs = append(errs, fmt.Errorf("--leader-elect-renew-deadline=%v must be greater than --leader-elect-retry-period=%v times %v, and that greater than 0", o.RenewDeadline, o.RetryPeriod, leaderelection.JitterFactor))
	}
	if o.ResourceLock != resourcelock.LeasesResourceLock {
		errs = append(errs, fmt.Errorf("--leader-elect-resource-lock=%s is not supported, use %s", o.ResourceLock, resourcelock.LeasesResourceLock))
	}
	return errors.Join(errs...)
}

// Run calls work while this instance leads, and only then. When leadership
// is lost, work's context ends; Run waits for work to return and contends
// again. When ctx ends, work has returned before the lease is given up, so
// that two instances never work at once. Run returns nil when ctx is done and
// work's error if work fails by itself, or panics.
func Run(ctx context.Context, o Options, kube kubernetes.Interface, work func(context.Context) error) error {
	if !o.LeaderElect {
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
	o.Observe(o.ResourceName, false)
	lock, err := resourcelock.New(o.ResourceLock, o.ResourceNamespace, o.ResourceName, kube.CoreV1(), kube.CoordinationV1(),
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

// term is one attempt to lead: waiting, working, giving up.
type term struct {
	work func(context.Context) error
	done chan error

	// mu guards leading, which decides who ends the election when ctx is
	// done: the gate if nothing runs yet, else the work when it has returned.
	mu      sync.Mutex
	leading bool
}

func (t *term) run(ctx context.Context, o Options, lock resourcelock.Interface) error {
	// The election outlives ctx by the time that work needs to return.
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
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            lock,
		LeaseDuration:   o.LeaseDuration,
		RenewDeadline:   o.RenewDeadline,
		RetryPeriod:     o.RetryPeriod,
		ReleaseOnCancel: true,
		Name:            o.ResourceName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(led context.Context) {
				o.Observe(o.ResourceName, true)
				t.lead(ctx, led, end)
			},
			OnStoppedLeading: func() { o.Observe(o.ResourceName, false) },
			OnNewLeader: func(identity string) {
				klog.FromContext(ctx).V(1).Info("Leader observed", "lease", o.ResourceName, "leader", identity)
			},
		},
	})
	if err != nil {
		return fmt.Errorf("leader election: %w", err)
	}
	elector.Run(election)
	// The elector calls lead in a goroutine of its own once it has acquired
	// the lease. If it never did, the gate has closed and ctx is done.
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
