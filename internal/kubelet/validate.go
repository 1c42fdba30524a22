package kubelet

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/kubelet/allocatable"
	"github.com/coracle-io/coracle/internal/kubelet/eviction"
	"github.com/coracle-io/coracle/internal/kubelet/image"
	"github.com/coracle-io/coracle/internal/kubelet/server"
	"github.com/coracle-io/coracle/internal/kubelet/shutdown"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
)

// Validate returns an error for an invalid configuration, and for settings that
// this kubelet does not support. Defaults must be set.
func Validate(k *kubeletconfig.KubeletConfiguration) error {
	var errs []error
	if k.CgroupDriver != "cgroupfs" && k.CgroupDriver != "systemd" { // the container runtime's driver is used, see checkCgroupDriver
		errs = append(errs, fmt.Errorf("cgroupDriver (--cgroup-driver) %q: want cgroupfs or systemd", k.CgroupDriver))
	}
	switch k.Authorization.Mode {
	case kubeletconfig.KubeletAuthorizationModeWebhook, kubeletconfig.KubeletAuthorizationModeAlwaysAllow:
	default:
		errs = append(errs, fmt.Errorf("--authorization-mode=%s: want Webhook or AlwaysAllow", k.Authorization.Mode))
	}
	_, err := eviction.Thresholds(k)
	errs = append(errs, err)
	if _, err := allocatable.Reserved(k, nil); err != nil {
		errs = append(errs, fmt.Errorf("invalid configuration: --system-reserved, --kube-reserved or --reserved-cpus: %w", err))
	}
	if _, err := resource.ParseQuantity(k.ContainerLogMaxSize); err != nil {
		errs = append(errs, fmt.Errorf("--container-log-max-size=%s: want a quantity such as 10Mi", k.ContainerLogMaxSize))
	}
	if _, err := server.TLS(k); err != nil {
		errs = append(errs, fmt.Errorf("invalid configuration: %w", err))
	}
	if _, err := shutdown.Groups(k); err != nil {
		errs = append(errs, fmt.Errorf("invalid configuration: %w", err))
	}
	errs = append(errs, image.CheckPolicy(k.ImagePullCredentialsVerificationPolicy, k.PreloadedImagesVerificationAllowlist))
	errs = append(errs, placementErrors(k)...)
	errs = append(errs, tracingErrors(k)...)
	for _, list := range [][]setting{numbers(k), durations(k), choices(k), entries(k)} {
		for _, s := range list {
			if s.wrong {
				errs = append(errs, fmt.Errorf("invalid configuration: %s", s.name))
			}
		}
	}
	for _, list := range [][]setting{unsupportedResources(k), unsupportedOperation(k)} {
		for _, s := range list {
			if s.wrong {
				errs = append(errs, fmt.Errorf("invalid configuration: %s is not supported by this kubelet", s.name))
			}
		}
	}
	gates, err := Features(k)
	for _, s := range gated(k, gates) {
		if s.wrong {
			errs = append(errs, fmt.Errorf("invalid configuration: %s", s.name))
		}
	}
	return errors.Join(append(errs, err)...)
}

// The defaults of cpuCFSQuotaPeriod, crashLoopBackOff.maxContainerRestartPeriod and
// imagePullCredentialsVerificationPolicy, and what that of memoryThrottlingFactor was, so
// that it may be set without its gate.
const (
	defaultQuotaPeriod     = 100 * time.Millisecond
	defaultRestartPeriod   = 5 * time.Minute
	defaultPullPolicy      = kubeletconfig.NeverVerifyPreloadedImages
	formerThrottlingFactor = 0.9
)

// gated are the settings that need a feature gate. One that is set to its default counts as
// one that is not set.
func gated(k *kubeletconfig.KubeletConfiguration, gates *feature.Set) []setting {
	period, memory := k.CPUCFSQuotaPeriod.Duration, gates.Enabled(feature.MemoryQoS)
	grace, restart := max(k.ShutdownGracePeriod.Duration, k.ShutdownGracePeriodCriticalPods.Duration), k.CrashLoopBackOff.MaxContainerRestartPeriod.Duration
	policy, allowlist := k.ImagePullCredentialsVerificationPolicy, k.PreloadedImagesVerificationAllowlist
	needs := func(what string, given bool, gate feature.Gate) setting {
		return setting{fmt.Sprintf("%s requires feature gate %s", what, gate), given && !gates.Enabled(gate)}
	}
	return []setting{
		needs(fmt.Sprintf("cpuCFSQuotaPeriod (--cpu-cfs-quota-period) %s", period), period != defaultQuotaPeriod, feature.CustomCPUCFSQuotaPeriod),
		{"memoryThrottlingFactor must not be set when MemoryQoS feature gate is disabled", !memory && isSet(k.MemoryThrottlingFactor, formerThrottlingFactor)},
		{fmt.Sprintf("memoryReservationPolicy %q requires MemoryQoS feature gate to be enabled", k.MemoryReservationPolicy), !memory && spec.TieredReservation(k)},
		needs("serverTLSBootstrap (--rotate-server-certificates) true", k.ServerTLSBootstrap, feature.RotateKubeletServerCertificate),
		needs("specifying shutdownGracePeriod or shutdownGracePeriodCriticalPods", grace > 0, feature.GracefulNodeShutdown),
		needs("specifying shutdownGracePeriodByPodPriority", len(k.ShutdownGracePeriodByPodPriority) > 0, feature.GracefulNodeShutdownBasedOnPodPriority),
		needs("defaultPodSysctls", len(k.DefaultPodSysctls) > 0, feature.DefaultPodSysctls),
		needs(fmt.Sprintf("crashLoopBackOff.maxContainerRestartPeriod %s", restart), restart != defaultRestartPeriod, feature.KubeletCrashLoopBackOffMax),
		needs("specifying imagePullCredentialsVerificationPolicy or preloadedImagesVerificationAllowlist",
			policy != defaultPullPolicy || len(allowlist) > 0, feature.KubeletEnsureSecretPulledImages),
	}
}

// Features returns the feature gates of a configuration.
func Features(k *kubeletconfig.KubeletConfiguration) (*feature.Set, error) {
	var gates []string
	for name, on := range k.FeatureGates {
		gates = append(gates, fmt.Sprintf("%s=%t", name, on))
	}
	slices.Sort(gates)
	return feature.Parse(gates)
}

// Warnings returns what the feature gates of a configuration say and what has no effect
// on this kubelet. An error is one of Features.
func Warnings(k *kubeletconfig.KubeletConfiguration) ([]string, error) {
	gates, err := Features(k)
	if err != nil {
		return nil, err
	}
	warnings := gates.Warnings()
	for _, gate := range []feature.Gate{
		feature.AtomicWriteVolumeUserFields, feature.DRAWorkloadResourceClaims, feature.GRPCContainerProbeTLS,
		feature.H2CContainerProbe, feature.VolumeBindMountOptions,
	} {
		if gates.Named()[gate] {
			warnings = append(warnings, fmt.Sprintf("Setting feature gate %s=true has no effect: this kubelet does not have this feature.", gate))
		}
	}
	return warnings, nil
}

// setting is a setting in an error, and whether there is one.
type setting struct {
	name  string
	wrong bool
}

// isSet reports whether a pointer is set to another value than those that mean
// what the kubelet does.
func isSet[T comparable](field *T, same ...T) bool {
	return field != nil && !slices.Contains(same, *field)
}

// numbers are the settings with bounds.
func numbers(k *kubeletconfig.KubeletConfiguration) []setting {
	within := func(name string, value, low, high int64) setting {
		return setting{fmt.Sprintf("%s %d must be between %d and %d, inclusive", name, value, low, high), value < low || value > high}
	}
	least := func(name string, value, low int64) setting {
		return setting{fmt.Sprintf("%s %d must not be less than %d", name, value, low), value < low}
	}
	parallel := int64(1)
	if k.MaxParallelImagePulls != nil {
		parallel = int64(*k.MaxParallelImagePulls)
	}
	return []setting{
		within("port (--port)", int64(k.Port), 1, 65535),
		within("healthzPort (--healthz-port)", int64(*k.HealthzPort), 0, 65535),
		within("imageGCHighThresholdPercent (--image-gc-high-threshold)", int64(*k.ImageGCHighThresholdPercent), 0, 100),
		within("imageGCLowThresholdPercent (--image-gc-low-threshold)", int64(*k.ImageGCLowThresholdPercent), 0, 100),
		{fmt.Sprintf("imageGCLowThresholdPercent (--image-gc-low-threshold) %d must be less than imageGCHighThresholdPercent (--image-gc-high-threshold) %d",
			*k.ImageGCLowThresholdPercent, *k.ImageGCHighThresholdPercent), *k.ImageGCLowThresholdPercent >= *k.ImageGCHighThresholdPercent},
		{"enableSystemLogHandler is required for enableSystemLogQuery", k.EnableSystemLogQuery != nil && *k.EnableSystemLogQuery && !*k.EnableSystemLogHandler},
		least("maxPods (--max-pods)", int64(k.MaxPods), 0),
		least("podsPerCore", int64(k.PodsPerCore), 0),
		within("oomScoreAdj (--oom-score-adj)", int64(*k.OOMScoreAdj), -1000, 1000),
		least("registryPullQPS (--registry-qps)", int64(*k.RegistryPullQPS), 0),
		least("registryBurst (--registry-burst)", int64(k.RegistryBurst), 0),
		least("eventRecordQPS (--event-qps)", int64(*k.EventRecordQPS), 0),
		least("eventBurst (--event-burst)", int64(k.EventBurst), 0),
		least("nodeLeaseDurationSeconds", int64(k.NodeLeaseDurationSeconds), 1),
		least("nodeStatusMaxImages", int64(*k.NodeStatusMaxImages), -1),
		least("containerLogMaxFiles (--container-log-max-files)", int64(*k.ContainerLogMaxFiles), 2),
		least("maxParallelImagePulls", parallel, 1),
		{fmt.Sprintf("maxParallelImagePulls %d cannot be larger than 1 unless serializeImagePulls (--serialize-image-pulls) is false", parallel),
			parallel > 1 && *k.SerializeImagePulls},
	}
}

// durations are the periods, which must be positive, and the durations with
// other bounds.
func durations(k *kubeletconfig.KubeletConfiguration) []setting {
	positive := func(name string, d time.Duration) setting {
		return setting{fmt.Sprintf("%s %s must be greater than 0", name, d), d <= 0}
	}
	oldest, youngest := k.ImageMaximumGCAge.Duration, k.ImageMinimumGCAge.Duration
	restart, quota := k.CrashLoopBackOff.MaxContainerRestartPeriod.Duration, k.CPUCFSQuotaPeriod.Duration
	rotation, flush := k.ContainerLogMonitorInterval.Duration, k.Logging.FlushFrequency.Duration.Duration
	return []setting{
		positive("syncFrequency", k.SyncFrequency.Duration),
		positive("fileCheckFrequency (--file-check-frequency)", k.FileCheckFrequency.Duration),
		positive("httpCheckFrequency (--http-check-frequency)", k.HTTPCheckFrequency.Duration),
		positive("nodeStatusUpdateFrequency (--node-status-update-frequency)", k.NodeStatusUpdateFrequency.Duration),
		positive("nodeStatusReportFrequency", k.NodeStatusReportFrequency.Duration),
		positive("streamingConnectionIdleTimeout", k.StreamingConnectionIdleTimeout.Duration),
		positive("runtimeRequestTimeout", k.RuntimeRequestTimeout.Duration),
		positive("cpuManagerReconcilePeriod (--cpu-manager-reconcile-period)", k.CPUManagerReconcilePeriod.Duration),
		{fmt.Sprintf("evictionPressureTransitionPeriod (--eviction-pressure-transition-period) %s must not be negative", k.EvictionPressureTransitionPeriod.Duration),
			k.EvictionPressureTransitionPeriod.Duration < 0},
		{fmt.Sprintf("imageMinimumGCAge (--minimum-image-ttl-duration) %s must not be negative", youngest), youngest < 0},
		{fmt.Sprintf("imageMaximumGCAge %s must be greater than imageMinimumGCAge %s, or 0 for no limit", oldest, youngest), oldest != 0 && oldest <= youngest},
		{fmt.Sprintf("crashLoopBackOff.maxContainerRestartPeriod %s must be between 1s and 300s", restart), restart.Milliseconds() < 1000 || restart.Milliseconds() > 300_000},
		{fmt.Sprintf("containerLogMonitorInterval %s must be a positive time duration greater than or equal to 3s", rotation), rotation < 3*time.Second},
		{fmt.Sprintf("logging.flushFrequency %s must be greater than zero, or 0 for the default", flush), flush < 0},
		{fmt.Sprintf("cpuCFSQuotaPeriod (--cpu-cfs-quota-period) %s must be between 1ms and 1sec, inclusive", quota), quota < time.Millisecond || quota > time.Second},
	}
}

// choices are the settings with given values.
func choices(k *kubeletconfig.KubeletConfiguration) []setting {
	strategies := []kubeletconfig.ResourceChangeDetectionStrategy{
		kubeletconfig.GetChangeDetectionStrategy, kubeletconfig.TTLCacheChangeDetectionStrategy, kubeletconfig.WatchChangeDetectionStrategy,
	}
	strategy := k.ConfigMapAndSecretChangeDetectionStrategy
	hairpin := []string{"", kubeletconfig.HairpinVeth, kubeletconfig.PromiscuousBridge, kubeletconfig.HairpinNone}
	reservation := []kubeletconfig.MemoryReservationPolicy{kubeletconfig.NoneMemoryReservationPolicy, kubeletconfig.TieredReservationMemoryReservationPolicy}
	out := []setting{
		{fmt.Sprintf("option %q specified for memoryReservationPolicy. Valid options are %q or %q", k.MemoryReservationPolicy, reservation[0], reservation[1]),
			!slices.Contains(reservation, k.MemoryReservationPolicy)},
		{fmt.Sprintf("hairpinMode (--hairpin-mode) %q: want one of %q", k.HairpinMode, hairpin[1:]), !slices.Contains(hairpin, k.HairpinMode)},
		{fmt.Sprintf("configMapAndSecretChangeDetectionStrategy %q: want one of %q", strategy, strategies), !slices.Contains(strategies, strategy)},
		{fmt.Sprintf("podLogsDir: pod logs path %q must be absolute path", k.PodLogsDir), !filepath.IsAbs(k.PodLogsDir)},
		{fmt.Sprintf("podLogsDir: pod logs path %q must be normalized", k.PodLogsDir), filepath.Clean(k.PodLogsDir) != k.PodLogsDir},
		{"can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup (--system-reserved-cgroup) or kubeReservedCgroup (--kube-reserved-cgroup)",
			k.ReservedSystemCPUs != "" && (k.SystemReservedCgroup != "" || k.KubeReservedCgroup != "")},
	}
	if factor := k.MemoryThrottlingFactor; factor != nil {
		out = append(out, setting{fmt.Sprintf("memoryThrottlingFactor %v must be greater than 0 and less than or equal to 1.0", *factor), *factor <= 0 || *factor > 1})
	}
	for name, address := range map[string]string{"address (--address)": k.Address, "healthzBindAddress": k.HealthzBindAddress} {
		out = append(out, setting{fmt.Sprintf("%s %q is not an IP address", name, address), net.ParseIP(address) == nil})
	}
	return out
}

// Values of enforceNodeAllocatable, and the ending of those that limit the CPU
// alone.
const (
	noneEnforced   = "none"
	systemReserved = "system-reserved"
	kubeReserved   = "kube-reserved"
	compressible   = "-compressible"
)

// reservedGroup is a control group of others that the kubelet limits to what is
// reserved for them.
type reservedGroup struct {
	what        string // as in enforceNodeAllocatable
	field, path string
	reserved    map[string]string
	cpuOnly     bool
}

// reservedGroups returns the groups that enforceNodeAllocatable has.
func reservedGroups(k *kubeletconfig.KubeletConfiguration) []reservedGroup {
	var out []reservedGroup
	for _, what := range k.EnforceNodeAllocatable {
		name, cpuOnly := strings.CutSuffix(what, compressible)
		switch name {
		case systemReserved:
			out = append(out, reservedGroup{what, "systemReservedCgroup (--system-reserved-cgroup)", k.SystemReservedCgroup, k.SystemReserved, cpuOnly})
		case kubeReserved:
			out = append(out, reservedGroup{what, "kubeReservedCgroup (--kube-reserved-cgroup)", k.KubeReservedCgroup, k.KubeReserved, cpuOnly})
		}
	}
	return out
}

// limitReserved limits the groups to what is reserved for them. Of their memory, the
// kernel takes nothing back that is reserved, with control groups of version 2 (KEP-2570).
func (c *Config) limitReserved() error {
	gates, err := Features(&c.Configuration)
	if err != nil {
		return err
	}
	for _, group := range reservedGroups(&c.Configuration) {
		reserved := v1.ResourceList{}
		for name, text := range group.reserved {
			q, err := resource.ParseQuantity(text)
			if err != nil {
				return fmt.Errorf("%s of %s: %w", name, group.what, err)
			}
			reserved[v1.ResourceName(name)] = q
		}
		limits := &runtimeapi.LinuxContainerResources{}
		if cpu, ok := reserved[v1.ResourceCPU]; ok {
			limits.CpuShares = spec.CPUShares(cpu.MilliValue())
		}
		var processes int64
		if !group.cpuOnly {
			limits.MemoryLimitInBytes, processes = reserved.Memory().Value(), reserved.Name("pid", resource.DecimalSI).Value()
			if limits.MemoryLimitInBytes > 0 && gates.Enabled(feature.MemoryQoS) {
				limits.Unified = map[string]string{spec.MemoryMin: strconv.FormatInt(limits.MemoryLimitInBytes, 10)}
			}
		}
		if err := c.Groups.Limit(filepath.Join("/", group.path), limits, processes); err != nil {
			return fmt.Errorf("limit the control group of %s: %w", group.what, err)
		}
	}
	return nil
}

// unsupportedResources are settings of the node's resources that have no effect
// in this kubelet.
func unsupportedResources(k *kubeletconfig.KubeletConfiguration) []setting {
	return []setting{
		{"qosReserved", len(k.QOSReserved) > 0},
		{"kubeletCgroups (--kubelet-cgroups)", k.KubeletCgroups != ""},
		{"systemCgroups (--system-cgroups)", k.SystemCgroups != ""},
		{"memorySwap.swapBehavior " + k.MemorySwap.SwapBehavior, !slices.Contains([]string{"", spec.NoSwap, spec.LimitedSwap}, k.MemorySwap.SwapBehavior)},
		{"kernelMemcgNotification", k.KernelMemcgNotification},
		{"maxOpenFiles", k.MaxOpenFiles != 0},
		{"volumeStatsAggPeriod", k.VolumeStatsAggPeriod.Duration != 0},
		{"userNamespaces.idsPerPod", k.UserNamespaces != nil && isSet(k.UserNamespaces.IDsPerPod, 65536)},
		{"containerLogMaxWorkers", isSet(k.ContainerLogMaxWorkers, 1)},
	}
}

// unsupportedOperation are the other settings that have no effect in this
// kubelet.
func unsupportedOperation(k *kubeletconfig.KubeletConfiguration) []setting {
	log := &k.Logging
	return []setting{
		{"readOnlyPort", k.ReadOnlyPort != 0},
		{"enableContentionProfiling", k.EnableContentionProfiling},
		{"enableControllerAttachDetach=false", isSet(k.EnableControllerAttachDetach, true)},
		{"runOnce", k.RunOnce},
		{"contentType " + k.ContentType + " (--kube-api-content-type)", k.ContentType != ""},
		{"kubeAPIQPS", k.KubeAPIQPS != nil},
		{"kubeAPIBurst", k.KubeAPIBurst != 0},
		{"protectKernelDefaults", k.ProtectKernelDefaults},
		{"makeIPTablesUtilChains", isSet(k.MakeIPTablesUtilChains, false)},
		{"iptablesMasqueradeBit", k.IPTablesMasqueradeBit != nil},
		{"iptablesDropBit", k.IPTablesDropBit != nil},
		{"showHiddenMetricsForVersion", k.ShowHiddenMetricsForVersion != ""},
		{"volumePluginDir (--volume-plugin-dir)", k.VolumePluginDir != ""},
		{"logging.format " + log.Format + " (--logging-format)", !slices.Contains([]string{"", "text", "json"}, log.Format)},
		{"logging.vmodule", len(log.VModule) > 0},
		{"logging.options.text", log.Options.Text.SplitStream || log.Options.Text.InfoBufferSize.Value() != 0},
		{"logging.options.json", log.Options.JSON.SplitStream || log.Options.JSON.InfoBufferSize.Value() != 0},
	}
}

// checkMachine returns an error on a machine that the configuration refuses.
func (c *Config) checkMachine() error {
	k := &c.Configuration
	if k.FailSwapOn != nil && *k.FailSwapOn {
		if c.swapCapacity() > 0 {
			return errors.New("running with swap on is not supported, please disable swap or set --fail-swap-on flag to false")
		}
	}
	if !c.unified() {
		if k.MemorySwap.SwapBehavior == spec.LimitedSwap {
			return fmt.Errorf("memorySwap.swapBehavior %s needs control groups of version 2", spec.LimitedSwap)
		}
		if k.FailCgroupV1 != nil && *k.FailCgroupV1 {
			return errors.New("kubelet is configured to not run on a host using cgroup v1: use version 2, or set failCgroupV1 to false")
		}
		if isSet(k.SingleProcessOOMKill, true) {
			return errors.New("invalid configuration: singleProcessOOMKill must not be explicitly set to false when using cgroup v1")
		}
	}
	for _, group := range reservedGroups(k) {
		if !c.hasGroup(group.path) {
			return fmt.Errorf("%s %q: there is no such control group, and the kubelet does not make it", group.field, group.path)
		}
	}
	return nil
}
