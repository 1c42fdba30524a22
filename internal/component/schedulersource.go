package component

import (
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	kubescheduler "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/flagvalue"
	"github.com/coracle-io/coracle/internal/scheduler"
	"github.com/coracle-io/coracle/internal/scheduler/config"
	"github.com/coracle-io/coracle/internal/scheduler/config/configv1"
	"github.com/coracle-io/coracle/internal/scheduler/config/legacy"
	"github.com/coracle-io/coracle/internal/scheduler/extender"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/all"
)

// schedulerSource is where a scheduler's configuration comes from.
type schedulerSource struct {
	// configFile is a KubeSchedulerConfiguration. With it the other fields,
	// except the last two, have no effect.
	configFile string
	// name is the schedulerName of the pods that are scheduled.
	name string
	// policyFile is a Policy. policyConfigMap names a ConfigMap with one.
	policyFile               string
	policyConfigMap          string
	policyConfigMapNamespace string
	// useLegacyPolicy prefers the file where there are both.
	useLegacyPolicy       bool
	algorithmProvider     string
	hardPodAffinityWeight int32
	// settings are those that no file has.
	settings     config.Configuration
	featureGates []string
}

func newSchedulerSource() schedulerSource {
	return schedulerSource{
		name: scheduler.DefaultName, policyConfigMapNamespace: "kube-system", hardPodAffinityWeight: 1,
		settings: config.Configuration{PodMaxInUnschedulablePods: 5 * time.Minute},
	}
}

func (s *schedulerSource) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.configFile, "config", s.configFile, "file with a KubeSchedulerConfiguration of kubescheduler.config.k8s.io/v1, such as /etc/kubernetes/scheduler.yaml")
	fs.StringVar(&s.name, "scheduler-name", s.name, "schedulerName of the pods that this scheduler takes; ignored with --config")
	fs.StringVar(&s.policyFile, "policy-config-file", s.policyFile, "file with a Policy of version v1; ignored with --config")
	fs.StringVar(&s.policyConfigMap, "policy-configmap", s.policyConfigMap, "name of a ConfigMap with a Policy at policy.cfg; ignored with --config")
	fs.StringVar(&s.policyConfigMapNamespace, "policy-configmap-namespace", s.policyConfigMapNamespace, "namespace of --policy-configmap")
	fs.BoolVar(&s.useLegacyPolicy, "use-legacy-policy-config", s.useLegacyPolicy, "use --policy-config-file even if --policy-configmap is given")
	fs.StringVar(&s.algorithmProvider, "algorithm-provider", s.algorithmProvider, "DefaultProvider or ClusterAutoscalerProvider; ignored with --config")
	fs.Int32Var(&s.hardPodAffinityWeight, "hard-pod-affinity-symmetric-weight", s.hardPodAffinityWeight, "hardPodAffinityWeight of InterPodAffinityArgs, 0 to 100; ignored with --config")
	fs.DurationVar(&s.settings.PodMaxInUnschedulablePods, "pod-max-in-unschedulable-pods-duration", s.settings.PodMaxInUnschedulablePods, "how long a pod that did not fit waits for a change that may help before it is tried again")
	fs.StringSliceVar(&s.featureGates, "feature-gates", s.featureGates, "feature gates as Name=true")
	flagvalue.Is(fs, flagvalue.Path, "config")
	flagvalue.Is(fs, flagvalue.File, "policy-config-file")
	flagvalue.Is(fs, flagvalue.Name, "scheduler-name")
}

// ignoredSchedulerFlags are upstream's flags that have no effect. They are
// accepted, so that command lines for upstream work.
func ignoredSchedulerFlags() *pflag.FlagSet {
	fs := ignoredComponentFlags()
	for name, why := range map[string]string{
		"failure-domains":       "has no effect: topology keys are of each pod",
		"lock-object-name":      "has no effect: see --leader-elect-resource-name",
		"lock-object-namespace": "has no effect: see --leader-elect-resource-namespace",
	} {
		fs.String(name, "", why)
	}
	return fs
}

// loadedConfiguration holds the configuration from the flags and from the files
// that they name.
type loadedConfiguration struct {
	// file is the only holder of its settings: flags are written into it.
	file   *kubescheduler.KubeSchedulerConfiguration
	policy *legacy.Source // a ConfigMap that is still to be read, or nil
	// shown is the content of /configz: file, and its policy once that is read.
	shown    *atomic.Pointer[kubescheduler.KubeSchedulerConfiguration]
	warnings []string
	settings config.Configuration // that file does not have
}

// load reads the files.
func (s *schedulerSource) load() (*loadedConfiguration, error) {
	l := &loadedConfiguration{settings: s.settings, shown: &atomic.Pointer[kubescheduler.KubeSchedulerConfiguration]{}}
	gates, err := feature.Parse(s.featureGates)
	if err != nil {
		return nil, err
	}
	if err := refuseGates(gates); err != nil {
		return nil, err
	}
	l.warnings, l.settings.Features = gates.Warnings(), gates
	if s.configFile == "" {
		l.file = &kubescheduler.KubeSchedulerConfiguration{Profiles: []kubescheduler.KubeSchedulerProfile{{SchedulerName: new(s.name)}}}
		return l, s.flags(l)
	}
	for flag, value := range map[string]string{"policy-config-file": s.policyFile, "policy-configmap": s.policyConfigMap, "algorithm-provider": s.algorithmProvider} {
		if value != "" {
			l.warnings = append(l.warnings, "--"+flag+" has no effect with --config")
		}
	}
	if err := l.read(s.configFile); err != nil {
		return nil, fmt.Errorf("--config=%s: %w", s.configFile, err)
	}
	l.withoutEffect()
	return l, nil
}

// refuseGates returns an error if a gate was turned on by its name that needs
// something which the scheduler does not have.
func refuseGates(gates *feature.Set) error {
	named := gates.Named()
	for _, gate := range []feature.Gate{feature.DRANodeAllocatableResources, feature.DRAOptionalNodeOperations, feature.DRAWorkloadResourceClaims} {
		if named[gate] {
			return fmt.Errorf("--feature-gates: %s=true: the scheduler does not have this feature", gate)
		}
	}
	return nil
}

// flags applies the flags of the time before --config.
func (s *schedulerSource) flags(l *loadedConfiguration) error {
	provider, err := legacy.Provider(s.algorithmProvider)
	if err != nil {
		return fmt.Errorf("--algorithm-provider: %w", err)
	}
	if s.policyConfigMap != "" && !s.useLegacyPolicy || s.policyFile != "" {
		if s.algorithmProvider != "" {
			l.warnings = append(l.warnings, "--algorithm-provider has no effect with a policy")
		}
		provider = &legacy.Policy{}
	}
	if s.hardPodAffinityWeight != 1 {
		provider.HardPodAffinitySymmetricWeight = &s.hardPodAffinityWeight
	}
	if err := provider.Apply(l.file); err != nil {
		return fmt.Errorf("--hard-pod-affinity-symmetric-weight: %w", err)
	}
	if s.policyConfigMap != "" && s.useLegacyPolicy {
		l.warnings = append(l.warnings, "--policy-configmap has no effect with --use-legacy-policy-config")
	}
	switch {
	case s.policyConfigMap != "" && !s.useLegacyPolicy:
		if s.policyFile != "" {
			l.warnings = append(l.warnings, "--policy-config-file has no effect with --policy-configmap, but for --use-legacy-policy-config")
		}
		l.policy = legacy.InConfigMap(s.policyConfigMapNamespace, s.policyConfigMap)
	case s.policyFile != "":
		data, err := os.ReadFile(s.policyFile)
		if err == nil {
			err = l.apply(data)
		}
		if err != nil {
			return fmt.Errorf("--policy-config-file=%s: %w", s.policyFile, err)
		}
	}
	return nil
}

// withoutEffect names the settings of the file that differ from the defaults
// and change nothing.
func (l *loadedConfiguration) withoutEffect() {
	const client = "has no effect: the client has no such limit"
	c := l.file.ClientConnection
	for _, setting := range []struct {
		differs     bool
		name, usage string
	}{
		{c.QPS != 0 && c.QPS != 50, "clientConnection.qps", client},
		{c.Burst != 0 && c.Burst != 100, "clientConnection.burst", client},
		{c.ContentType != "" && c.ContentType != runtime.ContentTypeProtobuf, "clientConnection.contentType", "has no effect: the client uses protobuf"},
		{c.AcceptContentTypes != "", "clientConnection.acceptContentTypes", "has no effect: the client uses protobuf"},
		{ptr.Deref(l.file.Parallelism, 16) != 16, "parallelism", "has no effect: one goroutine decides"},
		{!ptr.Deref(l.file.EnableContentionProfiling, true), "enableContentionProfiling", "has no effect: the server's settings are fixed"},
		{l.file.DelayCacheUntilActive, "delayCacheUntilActive", "has no effect: pods and nodes are always read when the scheduler becomes the leader"},
	} {
		if setting.differs {
			l.warnings = append(l.warnings, setting.name+" "+setting.usage)
		}
	}
}

// inCluster names the settings that choose an API server, which a scheduler of a
// cluster does not use.
func (l *loadedConfiguration) inCluster(master string) {
	for setting, value := range map[string]string{"clientConnection.kubeconfig": l.file.ClientConnection.Kubeconfig, "--master": master} {
		if value != "" {
			l.warnings = append(l.warnings, setting+" has no effect: the scheduler is one of its cluster")
		}
	}
}

// read reads the file of --config, in either form.
func (l *loadedConfiguration) read(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if !legacy.IsAlgorithmSource(data) {
		l.file, err = configv1.Decode(data)
		return err
	}
	var warnings []string
	l.file, l.policy, warnings, err = legacy.DecodeAlgorithmSource(data)
	l.warnings = append(l.warnings, warnings...)
	if err != nil || l.policy == nil || l.policy.File == nil {
		return err
	}
	if data, err = os.ReadFile(l.policy.File.Path); err != nil {
		return fmt.Errorf("algorithmSource.policy.file: %w", err)
	}
	l.policy = nil
	return l.apply(data)
}

// apply writes a policy into the configuration.
func (l *loadedConfiguration) apply(data []byte) error {
	p, err := legacy.DecodePolicy(data)
	if err != nil {
		return err
	}
	l.settings.AlwaysCheckAllPredicates = p.AlwaysCheckAllPredicates
	return p.Apply(l.file)
}

// finish sets the defaults, validates and converts.
func (l *loadedConfiguration) finish() (config.Configuration, error) {
	registry := all.Registry()
	configv1.SetDefaults(l.file, registry)
	if err := configv1.Validate(l.file, registry); err != nil {
		return config.Configuration{}, err
	}
	out := l.settings
	warnings, err := configv1.Convert(l.file, registry, &out)
	if err != nil {
		return config.Configuration{}, err
	}
	if _, err := extender.New(out.Extenders); err != nil {
		return config.Configuration{}, err
	}
	for _, w := range warnings {
		if !slices.Contains(l.warnings, w) {
			l.warnings = append(l.warnings, w)
		}
	}
	return out, nil
}
