package component

import (
	"context"
	"math/rand/v2"

	"github.com/spf13/pflag"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/component/base"
	"github.com/coracle-io/coracle/internal/controller/leader"
	"github.com/coracle-io/coracle/internal/scheduler"
)

// Scheduler assigns pods to nodes, while it leads.
type Scheduler struct {
	Kubeconfig string
	Serving    base.Serving
	Name       string
	Leader     leader.Options
}

// NewScheduler returns upstream's defaults.
func NewScheduler() *Scheduler {
	return &Scheduler{
		Serving: base.NewServing(10259),
		Name:    scheduler.DefaultName,
		Leader:  leader.DefaultOptions("kube-scheduler"),
	}
}

// AddFlags binds the flags.
func (s *Scheduler) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.Kubeconfig, "kubeconfig", s.Kubeconfig, "where the API server is and who this is")
	s.Serving.AddFlags(fs)
	fs.StringVar(&s.Name, "scheduler-name", s.Name, "schedulerName of the pods that this scheduler takes")
	s.Leader.AddFlags(fs)
}

// Validate reports what is wrong with the flags.
func (s *Scheduler) Validate() error { return s.Leader.Validate() }

// Run schedules in a process of its own.
func (s *Scheduler) Run(ctx context.Context) error {
	if err := s.Validate(); err != nil {
		return err
	}
	provider, err := base.Remote(s.Kubeconfig, "kube-scheduler")
	if err != nil {
		return err
	}
	return s.RunWith(ctx, provider)
}

// RunWith schedules with a client of the given provider, and serves its health.
func (s *Scheduler) RunWith(ctx context.Context, provider client.Provider) error {
	c := base.NewCounts(ctx)
	provider, err := c.Of(provider)
	if err != nil {
		return err
	}
	own, err := provider.As("system:kube-scheduler", "system:authenticated")
	if err != nil {
		return err
	}
	flags := base.FlagValuesOf(s.AddFlags)
	election, measure := s.Leader, scheduler.NewMetrics(c.Registry)
	election.Observe = c.Leads
	work := func(ctx context.Context) error {
		return scheduler.New(scheduler.Config{Client: own, Name: s.Name, Seed: rand.Uint64(), Metrics: measure}).Run(ctx)
	}
	return base.Together(ctx,
		provider.Run,
		func(ctx context.Context) error { return leader.Run(ctx, election, own.Kubernetes, work) },
		func(ctx context.Context) error { return s.Serving.Run(ctx, "kube-scheduler", own, flags, c) },
	)
}
