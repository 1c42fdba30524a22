package component

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	kubescheduler "k8s.io/kube-scheduler/config/v1"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/component/base"
	"github.com/coracle-io/coracle/internal/controller/leader"
	"github.com/coracle-io/coracle/internal/flagvalue"
	"github.com/coracle-io/coracle/internal/health"
	"github.com/coracle-io/coracle/internal/scheduler"
	"github.com/coracle-io/coracle/internal/scheduler/config"
	"github.com/coracle-io/coracle/internal/scheduler/config/configv1"
	"github.com/coracle-io/coracle/internal/scheduler/config/legacy"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/all"
)

// Scheduler assigns pods to nodes while it holds the leader lease.
type Scheduler struct {
	// Configuration has the values of the flags of schedulerFields: a default is
	// weaker than the file of --config, and a flag that was given is stronger.
	Configuration kubescheduler.KubeSchedulerConfiguration
	Serving       base.Serving
	// Master is the URL of the API server instead of the one in the kubeconfig.
	Master string
	// Identity is the identity for leader election, as in leader.Options.
	Identity string

	source        schedulerSource
	writeConfigTo string // file to write the configuration to instead of running
	fields        []*fieldValue
	logging       base.Logging
	ignored       *pflag.FlagSet
}

// NewScheduler returns upstream's defaults.
func NewScheduler() *Scheduler {
	s := &Scheduler{Serving: base.NewServing(10259), source: newSchedulerSource(), logging: base.NewLogging(), ignored: ignoredSchedulerFlags()}
	s.Configuration.EnableProfiling = new(true)
	s.Configuration.LeaderElection = leader.DefaultConfiguration("kube-scheduler")
	return s
}

// AddFlags binds the flags to fs.
func (s *Scheduler) AddFlags(fs *pflag.FlagSet) {
	s.fields = bindFields(fs, &s.Configuration, schedulerFields())
	s.Serving.AddFlags(fs)
	fs.StringVar(&s.writeConfigTo, "write-config-to", s.writeConfigTo, "write the configuration with its defaults to this file, and exit")
	s.source.addFlags(fs)
	addMasterFlag(fs, &s.Master)
	s.logging.AddFlags(fs)
	fs.AddFlagSet(s.ignored)
	leaderElectionKinds(fs)
	flagvalue.Is(fs, flagvalue.File, "kubeconfig")
	flagvalue.Is(fs, flagvalue.Path, "write-config-to")
}

// Validate returns all errors in the flags and in the files that they name.
func (s *Scheduler) Validate() error {
	loaded, err := s.load()
	if err != nil {
		return err
	}
	return s.validate(loaded)
}

// load reads the files that the flags name, and merges the flags into them.
func (s *Scheduler) load() (*loadedConfiguration, error) {
	if err := s.logging.Validate(); err != nil {
		return nil, err
	}
	loaded, err := s.source.load()
	if err != nil {
		return nil, err
	}
	if err := s.merge(loaded.file); err != nil {
		return nil, err
	}
	loaded.warnings = append(loaded.warnings, warningsOf(s.ignored)...)
	return loaded, nil
}

// Resolve returns what the scheduler is configured with. kube reads the ConfigMap
// of a policy, if there is one.
func (s *Scheduler) Resolve(ctx context.Context, kube kubernetes.Interface) (config.Configuration, error) {
	loaded, err := s.load()
	if err != nil {
		return config.Configuration{}, err
	}
	return loaded.configuration(ctx, kube)
}

// Run schedules in a process of its own.
func (s *Scheduler) Run(ctx context.Context) error {
	loaded, err := s.load()
	if err == nil {
		err = s.validate(loaded)
	}
	if err != nil {
		return err
	}
	if s.writeConfigTo != "" {
		return loaded.write(ctx, s.writeConfigTo)
	}
	provider, err := base.Remote(s.Master, loaded.file.ClientConnection.Kubeconfig, "kube-scheduler")
	if err != nil {
		return err
	}
	return s.run(ctx, loaded, provider)
}

// validate returns all errors of a configuration whose files were read.
func (s *Scheduler) validate(l *loadedConfiguration) error {
	election := l.file.LeaderElection // before finish replaces what is zero
	if l.policy == nil {
		if _, err := l.finish(); err != nil {
			return err
		}
	}
	return leader.Validate(&election)
}

// write writes the configuration to a file, after validate has set its defaults.
func (l *loadedConfiguration) write(ctx context.Context, file string) error {
	if l.policy != nil {
		return errors.New("--write-config-to: the policy is in a ConfigMap, give it with --policy-config-file")
	}
	data, err := configv1.Encode(configv1.Effective(l.file, all.Default(l.settings.Features)))
	if err != nil {
		return err
	}
	return writeConfiguration(ctx, file, data)
}

// RunWith schedules with a client of the given provider, and serves its health.
func (s *Scheduler) RunWith(ctx context.Context, provider client.Provider) error {
	loaded, err := s.load()
	if err != nil {
		return err
	}
	loaded.inCluster(s.Master)
	return s.run(ctx, loaded, provider)
}

func (s *Scheduler) run(ctx context.Context, l *loadedConfiguration, provider client.Provider) error {
	s.logging.Apply(ctx)
	c := base.NewCounts(ctx)
	provider, err := c.Of(provider)
	if err != nil {
		return err
	}
	own, err := provider.As("system:kube-scheduler", "system:authenticated")
	if err != nil {
		return err
	}
	flags, measure := s.flagValues(l.file), scheduler.NewMetrics(c.Registry)
	election := leader.Options{Configuration: l.file.LeaderElection, Identity: s.Identity, Observe: c.Leads}
	serving := s.Serving
	serving.Profiling = *l.file.EnableProfiling
	serving.Checks = election.AddHealth()
	var behind atomic.Bool // it leads, and does not know yet what is in the API server
	serving.Ready = schedulerReadiness(ctx, &behind)
	newScheduler := func(ctx context.Context, configuration config.Configuration) (*scheduler.Scheduler, error) {
		return scheduler.New(ctx, scheduler.Config{Client: own, Configuration: configuration, Seed: rand.Uint64(), Metrics: measure, Synced: func() { behind.Store(false) }})
	}
	if l.policy == nil { // what cannot work is refused before there is a lease
		configuration, err := l.finish()
		if err == nil {
			_, err = newScheduler(ctx, configuration)
		}
		if err != nil {
			return err
		}
	}
	for _, warning := range l.warnings {
		klog.FromContext(ctx).Info("Warning: " + warning)
	}
	work := func(ctx context.Context) error {
		configuration, err := l.configuration(ctx, own.Kubernetes)
		if err != nil {
			return err
		}
		scheduling, err := newScheduler(ctx, configuration)
		if err != nil {
			return err
		}
		behind.Store(true)
		defer behind.Store(false)
		return scheduling.Run(ctx)
	}
	serving.Pages = map[string]http.Handler{"/configz": l.configz(), "/metrics/resources": measure.ResourcesHandler()}
	return base.Together(ctx,
		provider.Run,
		func(ctx context.Context) error { return leader.Run(ctx, election, own.Kubernetes, work) },
		func(ctx context.Context) error { return serving.Run(ctx, "kube-scheduler", own, flags, c) },
	)
}

// schedulerReadiness returns upstream's checks of /readyz. A scheduler that waits for the
// lease watches nothing, and is as ready as it can be.
func schedulerReadiness(ctx context.Context, behind *atomic.Bool) []health.Check {
	synced := func(context.Context) error {
		if behind.Load() {
			return errors.New("handlers are not fully synchronized")
		}
		return nil
	}
	return []health.Check{
		{Name: "sched-handler-sync", Run: synced},
		{Name: "informer-sync", Run: synced},
		{Name: "shutdown", Run: func(context.Context) error { return ctx.Err() }},
	}
}

// configuration returns what the scheduler is configured with. It reads the
// policy's ConfigMap, if there is one.
func (l *loadedConfiguration) configuration(ctx context.Context, kube kubernetes.Interface) (config.Configuration, error) {
	if l.policy == nil {
		return l.finish()
	}
	where := l.policy.ConfigMap
	object, err := kube.CoreV1().ConfigMaps(where.Namespace).Get(ctx, where.Name, metav1.GetOptions{})
	if err != nil {
		return config.Configuration{}, fmt.Errorf("couldn't get policy config map %s/%s: %w", where.Namespace, where.Name, err)
	}
	data, ok := object.Data[legacy.ConfigMapKey]
	if !ok {
		return config.Configuration{}, fmt.Errorf("missing policy config map value at key %q", legacy.ConfigMapKey)
	}
	current := *l
	current.file = l.file.DeepCopy()
	if err := current.apply([]byte(data)); err != nil {
		return config.Configuration{}, fmt.Errorf("policy config map %s/%s: %w", where.Namespace, where.Name, err)
	}
	out, err := current.finish()
	if err == nil {
		l.shown.Store(current.file)
	}
	return out, err
}

// configz serves the configuration as upstream does. A policy in a ConfigMap is
// part of it once it is read.
func (l *loadedConfiguration) configz() http.Handler {
	l.shown.CompareAndSwap(nil, l.file)
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		effective := configv1.Effective(l.shown.Load(), all.Default(l.settings.Features))
		configv1.SetDefaults(effective, all.Registry())
		showConfiguration(w, "componentconfig", effective)
	})
}
