// Package component turns each component's command line, with upstream's
// flag names and defaults, into the running component: alone in a process
// over HTTPS, or inside a whole cluster that shares one process. The API
// server has a package of its own below.
package component

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/component/base"
	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/leader"
	"github.com/coracle-io/coracle/internal/controllers/all"
	"github.com/coracle-io/coracle/internal/metrics"
)

// ControllerManager runs all controllers, while it leads.
type ControllerManager struct {
	Kubeconfig string
	Serving    base.Serving
	Leader     leader.Options
	// RootCAFile is the file of the authority by which pods trust the API
	// server. RootCA is that authority, PEM, if there is no file.
	RootCAFile string
	RootCA     []byte
	// Options are those of controllers that have more than flags.
	Options all.Options

	enabled     []string // of --controllers
	controllers []controller.Descriptor
	ignored     ignoredControllerFlags
}

// NewControllerManager returns upstream's defaults.
func NewControllerManager() *ControllerManager {
	m := &ControllerManager{
		Serving: base.NewServing(10257),
		Leader:  leader.DefaultOptions("kube-controller-manager"),
		Options: all.DefaultOptions(),
		enabled: []string{"*"},
		ignored: newIgnoredControllerFlags(),
	}
	m.controllers = all.Controllers(&m.Options)
	return m
}

// AddFlags binds the flags.
func (m *ControllerManager) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&m.Kubeconfig, "kubeconfig", m.Kubeconfig, "where the API server is and who this is")
	m.Serving.AddFlags(fs)
	fs.StringVar(&m.RootCAFile, "root-ca-file", m.RootCAFile, "authority that pods trust the API server by")
	controller.AddFlags(fs, &m.enabled, m.controllers)
	m.ignored.addFlags(fs)
	m.Leader.AddFlags(fs)
}

// Validate reports what is wrong with the flags.
func (m *ControllerManager) Validate() error {
	_, err := controller.Select(m.controllers, m.enabled)
	errs := []error{err, m.Leader.Validate()}
	for _, d := range m.controllers {
		if d.Validate != nil {
			errs = append(errs, d.Validate())
		}
	}
	return errors.Join(errs...)
}

// Run runs the controllers of a process of their own.
func (m *ControllerManager) Run(ctx context.Context) error {
	if err := m.Validate(); err != nil {
		return err
	}
	provider, err := base.Remote(m.Kubeconfig, "kube-controller-manager")
	if err != nil {
		return err
	}
	return m.RunWith(ctx, provider)
}

// RunWith runs the controllers with clients of the given provider, and the
// server of their health.
func (m *ControllerManager) RunWith(ctx context.Context, provider client.Provider) error {
	c := base.NewCounts(ctx)
	provider, err := c.Of(provider)
	if err != nil {
		return err
	}
	own, err := provider.As("system:kube-controller-manager", "system:authenticated")
	if err != nil {
		return err
	}
	rootCA, err := m.rootCA()
	if err != nil {
		return err
	}
	flags := base.FlagValuesOf(m.AddFlags)
	election := m.Leader
	election.Observe = c.Leads
	runner := controller.Runner{Provider: provider, Controllers: m.controllers, Enabled: m.enabled, RootCA: rootCA}
	return base.Together(metrics.WithQueues(ctx, c.Queues),
		provider.Run,
		func(ctx context.Context) error { return leader.Run(ctx, election, own.Kubernetes, runner.Run) },
		func(ctx context.Context) error { return m.Serving.Run(ctx, "kube-controller-manager", own, flags, c) },
	)
}

func (m *ControllerManager) rootCA() ([]byte, error) {
	if m.RootCAFile == "" {
		return m.RootCA, nil
	}
	pem, err := os.ReadFile(m.RootCAFile)
	if err != nil {
		return nil, fmt.Errorf("--root-ca-file: %w", err)
	}
	return pem, nil
}

// ignoredControllerFlags are upstream's flags for controllers that are not here
// and for periods that are not needed. They are accepted, so that command lines
// written for upstream work.
type ignoredControllerFlags struct {
	resourceClaimSyncs, autoscalerSyncs                                               int
	binderSyncPeriod                                                                  time.Duration
	autoscalerSyncPeriod, autoscalerStabilization, autoscalerStartup, autoscalerReady time.Duration
	autoscalerTolerance                                                               float64
}

func newIgnoredControllerFlags() ignoredControllerFlags {
	return ignoredControllerFlags{
		resourceClaimSyncs: 50, autoscalerSyncs: 5, binderSyncPeriod: 15 * time.Second,
		autoscalerSyncPeriod: 15 * time.Second, autoscalerStabilization: 5 * time.Minute,
		autoscalerStartup: 5 * time.Minute, autoscalerReady: 30 * time.Second, autoscalerTolerance: 0.1,
	}
}

func (f *ignoredControllerFlags) addFlags(fs *pflag.FlagSet) {
	const noAutoscaler = "has no effect: there is no horizontal pod autoscaler"
	fs.IntVar(&f.autoscalerSyncs, "concurrent-horizontal-pod-autoscaler-syncs", f.autoscalerSyncs, noAutoscaler)
	fs.DurationVar(&f.autoscalerSyncPeriod, "horizontal-pod-autoscaler-sync-period", f.autoscalerSyncPeriod, noAutoscaler)
	fs.DurationVar(&f.autoscalerStabilization, "horizontal-pod-autoscaler-downscale-stabilization", f.autoscalerStabilization, noAutoscaler)
	fs.Float64Var(&f.autoscalerTolerance, "horizontal-pod-autoscaler-tolerance", f.autoscalerTolerance, noAutoscaler)
	fs.DurationVar(&f.autoscalerStartup, "horizontal-pod-autoscaler-cpu-initialization-period", f.autoscalerStartup, noAutoscaler)
	fs.DurationVar(&f.autoscalerReady, "horizontal-pod-autoscaler-initial-readiness-delay", f.autoscalerReady, noAutoscaler)
	fs.IntVar(&f.resourceClaimSyncs, "concurrent-resource-claim-syncs", f.resourceClaimSyncs, "has no effect: there is no controller of resource claims")
	fs.DurationVar(&f.binderSyncPeriod, "pvclaimbinder-sync-period", f.binderSyncPeriod, "has no effect: claims and volumes are bound when they change")
}
