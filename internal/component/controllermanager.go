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
	RootCAFile string
	Options    *controller.Options
	Leader     leader.Options
}

// NewControllerManager returns upstream's defaults.
func NewControllerManager() *ControllerManager {
	return &ControllerManager{
		Serving: base.NewServing(10257),
		Options: controller.DefaultOptions(),
		Leader:  leader.DefaultOptions("kube-controller-manager"),
	}
}

// AddFlags binds the flags.
func (m *ControllerManager) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&m.Kubeconfig, "kubeconfig", m.Kubeconfig, "where the API server is and who this is")
	m.Serving.AddFlags(fs)
	fs.StringVar(&m.RootCAFile, "root-ca-file", m.RootCAFile, "authority that pods trust the API server by")
	m.Options.AddFlags(fs, controller.Names(all.Controllers()))
	m.Leader.AddFlags(fs)
}

// Validate reports what is wrong with the flags.
func (m *ControllerManager) Validate() error {
	_, err := controller.Select(all.Controllers(), m.Options.Controllers)
	return errors.Join(err, m.Leader.Validate())
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
	if m.RootCAFile != "" {
		if m.Options.RootCA, err = os.ReadFile(m.RootCAFile); err != nil {
			return fmt.Errorf("--root-ca-file: %w", err)
		}
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
	flags := base.FlagValuesOf(m.AddFlags)
	election := m.Leader
	election.Observe = c.Leads
	runner := controller.Runner{
		Provider: provider, Controllers: all.Controllers(), Options: m.Options,
	}
	return base.Together(metrics.WithQueues(ctx, c.Queues),
		provider.Run,
		func(ctx context.Context) error { return leader.Run(ctx, election, own.Kubernetes, runner.Run) },
		func(ctx context.Context) error { return m.Serving.Run(ctx, "kube-controller-manager", own, flags, c) },
	)
}
