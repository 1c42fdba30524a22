package legacy

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	componentconfig "k8s.io/component-base/config/v1alpha1"
	kubescheduler "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/scheduler/config/configv1"
)

// configuration is KubeSchedulerConfiguration v1alpha1.
type configuration struct {
	metav1.TypeMeta                `json:",inline"`
	SchedulerName                  string          `json:"schedulerName,omitempty"`
	AlgorithmSource                AlgorithmSource `json:"algorithmSource"`
	HardPodAffinitySymmetricWeight *int32          `json:"hardPodAffinitySymmetricWeight,omitempty"`
	LeaderElection                 leaderElection  `json:"leaderElection,omitempty"`
	ClientConnection               connection      `json:"clientConnection,omitempty"`
	HealthzBindAddress             string          `json:"healthzBindAddress,omitempty"`
	MetricsBindAddress             string          `json:"metricsBindAddress,omitempty"`
	EnableProfiling                *bool           `json:"enableProfiling,omitempty"`
	EnableContentionProfiling      *bool           `json:"enableContentionProfiling,omitempty"`
	DisablePreemption              bool            `json:"disablePreemption,omitempty"`
	PercentageOfNodesToScore       *int32          `json:"percentageOfNodesToScore,omitempty"`
	FailureDomains                 string          `json:"failureDomains,omitempty"`
	BindTimeoutSeconds             *int64          `json:"bindTimeoutSeconds,omitempty"`
	PodInitialBackoffSeconds       *int64          `json:"podInitialBackoffSeconds,omitempty"`
	PodMaxBackoffSeconds           *int64          `json:"podMaxBackoffSeconds,omitempty"`
	Plugins                        pointSets       `json:"plugins,omitempty"`
	// PluginConfig has arguments in the form of v1, whose kind may be left out.
	PluginConfig []kubescheduler.PluginConfig `json:"pluginConfig,omitempty"`
}

type leaderElection struct {
	componentconfig.LeaderElectionConfiguration `json:",inline"`
	LockObjectNamespace                         string `json:"lockObjectNamespace,omitempty"`
	LockObjectName                              string `json:"lockObjectName,omitempty"`
}

type connection struct {
	componentconfig.ClientConnectionConfiguration `json:",inline"`
	KubeConfigFile                                string `json:"kubeConfigFile,omitempty"`
}

// AlgorithmSource says where the predicates and priorities come from.
type AlgorithmSource struct {
	// Provider is the name of a built-in set.
	Provider *string `json:"provider,omitempty"`
	Policy   *Source `json:"policy,omitempty"`
}

// Source is where a policy comes from: a file or a ConfigMap.
type Source struct {
	File *struct {
		Path string `json:"path"`
	} `json:"file,omitempty"`
	ConfigMap *struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"configMap,omitempty"`
}

// IsAlgorithmSource reports whether the file is a KubeSchedulerConfiguration of
// a version that had algorithmSource.
func IsAlgorithmSource(data []byte) bool {
	var meta metav1.TypeMeta
	return yaml.Unmarshal(data, &meta) == nil && meta.Kind == "KubeSchedulerConfiguration" &&
		slices.Contains([]string{"componentconfig/v1alpha1", "kubescheduler.config.k8s.io/v1alpha1"}, meta.APIVersion)
}

// DecodeAlgorithmSource reads a KubeSchedulerConfiguration v1alpha1. The policy
// that it names, if any, is to be read and applied by the caller. Warnings name
// fields without effect.
func DecodeAlgorithmSource(data []byte) (cfg *kubescheduler.KubeSchedulerConfiguration, policy *Source, warnings []string, err error) {
	var c configuration
	if err := decode(data, &c); err != nil {
		return nil, nil, nil, err
	}
	for name, given := range map[string]bool{
		"healthzBindAddress": c.HealthzBindAddress != "", "metricsBindAddress": c.MetricsBindAddress != "", "failureDomains": c.FailureDomains != "",
	} {
		if given {
			warnings = append(warnings, name+" has no effect")
		}
	}
	slices.Sort(warnings)
	cfg = &kubescheduler.KubeSchedulerConfiguration{
		PercentageOfNodesToScore: c.PercentageOfNodesToScore, PodInitialBackoffSeconds: c.PodInitialBackoffSeconds, PodMaxBackoffSeconds: c.PodMaxBackoffSeconds,
		LeaderElection: c.LeaderElection.LeaderElectionConfiguration, ClientConnection: c.ClientConnection.ClientConnectionConfiguration,
	}
	cfg.EnableProfiling, cfg.EnableContentionProfiling = c.EnableProfiling, c.EnableContentionProfiling
	for _, older := range []struct {
		into        *string
		name, older string
		value       string
	}{
		{&cfg.LeaderElection.ResourceName, "ResourceName", "LockObjectName", c.LeaderElection.LockObjectName},
		{&cfg.LeaderElection.ResourceNamespace, "ResourceNamespace", "LockObjectNamespace", c.LeaderElection.LockObjectNamespace},
		{&cfg.ClientConnection.Kubeconfig, "Kubeconfig", "KubeConfigFile", c.ClientConnection.KubeConfigFile},
	} {
		if *older.into != "" && older.value != "" && *older.into != older.value {
			return nil, nil, nil, fmt.Errorf("%s and %s are both set and do not match, %s: %s, %s: %s", older.name, older.older, older.name, *older.into, older.older, older.value)
		}
		*older.into = cmp.Or(*older.into, older.value)
	}
	if lock := &cfg.LeaderElection.ResourceLock; *lock != "" && *lock != "leases" {
		warnings = append(warnings, fmt.Sprintf("leaderElection.resourceLock: %s is not supported, the lock is a Lease", *lock))
		*lock = "leases"
	}
	if policy, err = c.algorithm(cfg); err != nil {
		return nil, nil, nil, err
	}
	profile := &cfg.Profiles[0]
	c.Plugins.addTo(profile.Plugins)
	if err := configv1.DecodeArguments(c.PluginConfig); err != nil {
		return nil, nil, nil, err
	}
	profile.PluginConfig = append(profile.PluginConfig, c.PluginConfig...)
	if c.SchedulerName != "" {
		profile.SchedulerName = ptr.To(c.SchedulerName)
	}
	if c.BindTimeoutSeconds != nil {
		profile.PluginConfig = append(profile.PluginConfig, kubescheduler.PluginConfig{
			Name: "VolumeBinding", Args: runtime.RawExtension{Object: &kubescheduler.VolumeBindingArgs{BindTimeoutSeconds: c.BindTimeoutSeconds}},
		})
	}
	if c.DisablePreemption {
		profile.Plugins.PostFilter.Disabled = []kubescheduler.Plugin{{Name: "DefaultPreemption"}}
	}
	return cfg, policy, warnings, nil
}

// algorithm sets the one profile, and returns where its policy comes from.
func (c *configuration) algorithm(cfg *kubescheduler.KubeSchedulerConfiguration) (*Source, error) {
	plan := Policy{HardPodAffinitySymmetricWeight: c.HardPodAffinitySymmetricWeight}
	source := c.AlgorithmSource
	switch {
	case source.Provider != nil && source.Policy != nil:
		return nil, fmt.Errorf("algorithmSource: provider and policy: choose one of them")
	case source.Policy != nil && (source.Policy.File == nil) == (source.Policy.ConfigMap == nil):
		return nil, fmt.Errorf("algorithmSource.policy: exactly one of file and configMap is required")
	case source.Provider != nil:
		if err := plan.provider(*source.Provider); err != nil {
			return nil, err
		}
	}
	return source.Policy, plan.Apply(cfg)
}

// provider sets the priorities of a built-in set of --algorithm-provider.
func (p *Policy) provider(name string) error {
	switch name {
	case "", kubescheduler.SchedulerDefaultProviderName:
	case "ClusterAutoscalerProvider": // the default set, but full nodes first
		p.Priorities = []Priority{
			{Name: "MostRequestedPriority", Weight: 1}, {Name: "BalancedResourceAllocation", Weight: 1}, {Name: "ImageLocalityPriority", Weight: 1},
			{Name: "InterPodAffinityPriority", Weight: 2}, {Name: "NodeAffinityPriority", Weight: 2}, {Name: "TaintTolerationPriority", Weight: 3},
			{Name: "EvenPodsSpreadPriority", Weight: 2},
		}
	default:
		return fmt.Errorf("invalid algorithm provider %q: want DefaultProvider or ClusterAutoscalerProvider", name)
	}
	return nil
}

// Provider returns a built-in set of --algorithm-provider as a policy.
func Provider(name string) (*Policy, error) {
	p := &Policy{}
	return p, p.provider(name)
}

// InConfigMap returns the source of a policy in a ConfigMap.
func InConfigMap(namespace, name string) *Source {
	s := &Source{}
	s.ConfigMap = &struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	}{namespace, name}
	return s
}
