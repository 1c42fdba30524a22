package configv1

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	componentconfig "k8s.io/component-base/config/v1alpha1"
	kubescheduler "k8s.io/kube-scheduler/config/v1"

	"github.com/coracle-io/coracle/internal/resource/defaults"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// SetDefaults fills in what the file leaves out, and the arguments of all plugins
// that have a kind of this API group for them. The plugin sets stay as they are;
// see Effective.
func SetDefaults(cfg *kubescheduler.KubeSchedulerConfiguration, registry framework.Registry) {
	cfg.SetGroupVersionKind(kubescheduler.SchemeGroupVersion.WithKind(kind))
	defaults.Nil(&cfg.Parallelism, 16)
	defaults.Nil(&cfg.PercentageOfNodesToScore, 0)
	defaults.Nil(&cfg.PodInitialBackoffSeconds, 1)
	defaults.Nil(&cfg.PodMaxBackoffSeconds, 10)
	if len(cfg.Profiles) == 0 {
		cfg.Profiles = []kubescheduler.KubeSchedulerProfile{{}}
	}
	if len(cfg.Profiles) == 1 {
		defaults.Nil(&cfg.Profiles[0].SchedulerName, v1.DefaultSchedulerName)
	}
	for i := range cfg.Profiles {
		setProfileDefaults(&cfg.Profiles[i], registry)
	}
	if cfg.LeaderElection.ResourceLock == "" {
		cfg.LeaderElection.ResourceLock = "leases"
	}
	if cfg.LeaderElection.ResourceName == "" {
		cfg.LeaderElection.ResourceName = kubescheduler.SchedulerDefaultLockObjectName
	}
	if cfg.LeaderElection.ResourceNamespace == "" {
		cfg.LeaderElection.ResourceNamespace = kubescheduler.SchedulerDefaultLockObjectNamespace
	}
	componentconfig.RecommendedDefaultLeaderElectionConfiguration(&cfg.LeaderElection)
	if cfg.ClientConnection.ContentType == "" {
		cfg.ClientConnection.ContentType = "application/vnd.kubernetes.protobuf"
	}
	if cfg.ClientConnection.QPS == 0 {
		cfg.ClientConnection.QPS = 50
	}
	if cfg.ClientConnection.Burst == 0 {
		cfg.ClientConnection.Burst = 100
	}
	defaults.Nil(&cfg.EnableProfiling, true)
	defaults.Nil(&cfg.EnableContentionProfiling, true)
	for i := range cfg.Extenders {
		if cfg.Extenders[i].HTTPTimeout.Duration == 0 {
			cfg.Extenders[i].HTTPTimeout.Duration = defaultHTTPTimeout
		}
	}
}

// defaultHTTPTimeout is how long an extender is waited for.
const defaultHTTPTimeout = 5 * time.Second

func setProfileDefaults(p *kubescheduler.KubeSchedulerProfile, registry framework.Registry) {
	given := map[string]bool{}
	for i := range p.PluginConfig {
		c := &p.PluginConfig[i]
		given[c.Name] = true
		f, err := registry.Find(c.Name)
		if err != nil || f.NewArguments == nil {
			continue
		}
		if c.Args.Object == nil && len(c.Args.Raw) == 0 {
			c.Args.Object, _ = f.NewArguments().(runtime.Object)
		}
		if c.Args.Object != nil {
			f.SetDefaults(c.Args.Object)
		}
	}
	for _, f := range slices.SortedFunc(slices.Values(registry), func(a, b framework.Factory) int { return strings.Compare(a.Name, b.Name) }) {
		if arguments, ok := f.DefaultArguments().(runtime.Object); ok && !given[f.Name] {
			p.PluginConfig = append(p.PluginConfig, kubescheduler.PluginConfig{Name: f.Name, Args: runtime.RawExtension{Object: arguments}})
		}
	}
}
