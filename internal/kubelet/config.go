package kubelet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	internalapi "k8s.io/cri-api/pkg/apis"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/kubelet/allocatable"
	"github.com/coracle-io/coracle/internal/kubelet/cgroup"
	"github.com/coracle-io/coracle/internal/kubelet/cpumanager"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/hostpath"
	"github.com/coracle-io/coracle/internal/kubelet/image"
	"github.com/coracle-io/coracle/internal/kubelet/memorymanager"
	"github.com/coracle-io/coracle/internal/kubelet/node"
	pods "github.com/coracle-io/coracle/internal/kubelet/pod"
	"github.com/coracle-io/coracle/internal/kubelet/server"
	"github.com/coracle-io/coracle/internal/kubelet/shutdown"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	"github.com/coracle-io/coracle/internal/kubelet/topologymanager"
	"github.com/coracle-io/coracle/internal/memory"
	registry "github.com/coracle-io/coracle/internal/metrics"
	"github.com/coracle-io/coracle/internal/nodeaddress"
	"github.com/coracle-io/coracle/internal/resource/defaults"
	"github.com/coracle-io/coracle/internal/tracing"
)

// Config configures a Kubelet. Flags set the first fields.
type Config struct {
	// NodeName is the name of the Node object and of the machine.
	NodeName string
	// NodeIPs are the node's addresses, primary first; default: of the
	// interface with the default route. Those of a Machine that is
	// node.Addressed take their place.
	NodeIPs    []string
	NodeLabels map[string]string
	// RootDirectory keeps the pods' volumes (/var/lib/kubelet).
	RootDirectory string
	// Configuration is upstream's; Complete fills in its defaults. The package
	// comment says how the parts get it.
	Configuration kubeletconfig.KubeletConfiguration

	// Client is the node's own identity (system:node:NAME). Nil runs static
	// pods only.
	Client *client.Client

	// NetworkPolicies isolates pods before their containers start; nil does not.
	NetworkPolicies pods.NetworkPolicies

	// CredentialProviders have the node's logins for images; nil has none.
	CredentialProviders *image.Providers

	// Runtime and Images override Configuration.ContainerRuntimeEndpoint.
	Runtime internalapi.RuntimeService
	Images  internalapi.ImageManagerService
	// RuntimeProcess is what is known of the runtime beside its API.
	RuntimeProcess RuntimeProcess

	// Memory is what the process of the kubelet may use; nil is without a limit.
	Memory Memory

	// The machine; nil is the real one.
	Files   files.FS
	Mounter files.Mounter
	Groups  cgroup.Groups
	Machine node.Machine
	// WithoutSockets leaves out the services for device plugins, pod resources and pods,
	// whose sockets are not part of Files, and does not look for sockets of plugins.
	WithoutSockets bool
	// Logind connects to the machine's logind; nil is the real one.
	Logind func(ctx context.Context) (shutdown.Logind, error)

	// Access of the server; what is nil is made from Configuration.
	server.Access
	// Metrics is the registry behind /metrics; nil is a registry of its own.
	Metrics *registry.Registry
	// Diagnostics show what the kubelet does, besides its metrics.
	Diagnostics Diagnostics
}

// Diagnostics show what a kubelet does.
type Diagnostics struct {
	// Pages are more pages of the server by path, such as /flagz.
	Pages map[string]http.Handler
	// Tracing makes the spans that Configuration.Tracing asks for. The caller starts
	// it, because its clients use it, too. Nil is no tracing.
	Tracing *tracing.Provider
}

// RuntimeProcess is what is known of a container runtime beside its API.
type RuntimeProcess struct {
	// DeleteTask kills the processes of a container that the runtime refuses to
	// remove (FailedPrecondition), so that it can; nil if there is no such way.
	DeleteTask func(ctx context.Context, containerID string) error
	// CGroup is the absolute name of its control group, "" if that is not known.
	CGroup string
}

// Memory is the memory of the kubelet's process, such as a memory.Budget.
type Memory interface {
	// Limit is how much the process may use, in bytes; math.MaxInt64 is no limit.
	Limit() int64
	// Shortage returns an error with the use and the limit if there is no room for
	// more pods and objects.
	Shortage(now time.Time) error
}

// Addresses returns the valid addresses in NodeIPs.
func (c *Config) Addresses() []net.IP {
	var out []net.IP
	for _, s := range c.NodeIPs {
		if ip := net.ParseIP(s); ip != nil {
			out = append(out, ip)
		}
	}
	return out
}

func duration(field *metav1.Duration, value time.Duration) {
	if field.Duration == 0 {
		field.Duration = value
	}
}

// Upstream's defaults that are used in more than one place.
const (
	DefaultPort        = 10250
	DefaultHealthzPort = 10248
	// DefaultReportFrequency is that of nodeStatusReportFrequency where
	// nodeStatusUpdateFrequency is not set either.
	DefaultReportFrequency = 5 * time.Minute
)

// Complete sets missing values, also those that it finds on the machine, such as
// the control groups and the address. It returns an error for what this kubelet
// or the machine does not support.
func (c *Config) Complete() error {
	if c.NodeName == "" {
		return fmt.Errorf("the kubelet needs a node name (--hostname-override)")
	}
	defaults.Zero(&c.RootDirectory, hostpath.Root)
	k := &c.Configuration
	DefaultConfiguration(k)
	defaults.Zero(&k.ImageServiceEndpoint, k.ContainerRuntimeEndpoint)
	if err := Validate(k); err != nil {
		return err
	}
	if k.Tracing != nil && c.Diagnostics.Tracing == nil {
		return errors.New("tracing is configured, but the kubelet has no provider of spans")
	}
	if c.Files == nil {
		c.Files = files.OS{}
	}
	if c.Mounter == nil {
		c.Mounter = files.OS{}
	}
	if c.Groups == nil {
		groups, err := cgroup.Detect()
		if err != nil {
			return err
		}
		c.Groups = groups
	}
	if c.Memory == nil {
		c.Memory = memory.NewBudget(math.MaxInt64)
	}
	if c.Machine == nil {
		c.Machine = &node.Local{Disk: c.RootDirectory}
	}
	if c.Logind == nil {
		c.Logind = shutdown.System
	}
	defaults.Nil(&k.SingleProcessOOMKill, !c.unified())
	if gates, err := Features(k); err != nil || !c.unified() || !gates.Enabled(feature.MemoryQoS) { // they have no effect
		k.MemoryReservationPolicy, k.MemoryThrottlingFactor = kubeletconfig.NoneMemoryReservationPolicy, nil
	}
	if c.Metrics == nil {
		c.Metrics = registry.NewRegistry(nil)
	}
	if err := c.checkMachine(); err != nil {
		return err
	}
	for _, ip := range c.NodeIPs {
		if err := node.CheckIP(ip); err != nil {
			return fmt.Errorf("--node-ip=%s: %w", ip, err)
		}
	}
	if len(c.NodeIPs) == 0 {
		ip, err := node.DefaultIP()
		if err != nil {
			return fmt.Errorf("find the node's address (--node-ip sets it): %w", err)
		}
		c.NodeIPs = []string{ip.String()}
	}
	return nil
}

// unified reports whether the machine has control groups of version 2 alone.
func (c *Config) unified() bool {
	_, err := c.Files.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err == nil
}

// DefaultConfiguration sets upstream's defaults for missing values.
func DefaultConfiguration(k *kubeletconfig.KubeletConfiguration) {
	defaults.Nil(&k.EnableServer, true)
	defaults.Nil(&k.FailSwapOn, true)
	defaults.Zero(&k.ContainerRuntimeEndpoint, "unix:///run/containerd/containerd.sock")
	defaults.Zero(&k.PodLogsDir, hostpath.PodLogs)
	duration(&k.SyncFrequency, time.Minute)
	duration(&k.FileCheckFrequency, 20*time.Second)
	duration(&k.HTTPCheckFrequency, 20*time.Second)
	defaults.Zero(&k.Address, "0.0.0.0")
	defaults.Zero(&k.Port, DefaultPort)
	defaults.Nil(&k.HealthzPort, int32(DefaultHealthzPort))
	defaults.Zero(&k.HealthzBindAddress, "127.0.0.1")
	defaults.Nil(&k.Authentication.Anonymous.Enabled, false)
	defaults.Nil(&k.Authentication.Webhook.Enabled, true)
	duration(&k.Authentication.Webhook.CacheTTL, 2*time.Minute)
	defaults.Zero(&k.Authorization.Mode, kubeletconfig.KubeletAuthorizationModeWebhook)
	duration(&k.Authorization.Webhook.CacheAuthorizedTTL, 5*time.Minute)
	duration(&k.Authorization.Webhook.CacheUnauthorizedTTL, 30*time.Second)
	defaults.Nil(&k.RegistryPullQPS, int32(5))
	defaults.Zero(&k.RegistryBurst, 10)
	defaults.Zero(&k.ImagePullCredentialsVerificationPolicy, defaultPullPolicy)
	defaults.Nil(&k.EventRecordQPS, int32(50))
	defaults.Zero(&k.EventBurst, 100)
	defaults.Nil(&k.EnableDebuggingHandlers, true)
	duration(&k.StreamingConnectionIdleTimeout, 4*time.Hour)
	duration(&k.NodeStatusReportFrequency, cmp.Or(k.NodeStatusUpdateFrequency.Duration, DefaultReportFrequency))
	duration(&k.NodeStatusUpdateFrequency, 10*time.Second)
	defaults.Zero(&k.NodeLeaseDurationSeconds, 40)
	duration(&k.ImageMinimumGCAge, 2*time.Minute)
	defaults.Nil(&k.ImageGCHighThresholdPercent, int32(85))
	defaults.Nil(&k.ImageGCLowThresholdPercent, int32(80))
	defaults.Nil(&k.CgroupsPerQOS, true)
	defaults.Zero(&k.CgroupDriver, "cgroupfs")
	duration(&k.RuntimeRequestTimeout, 2*time.Minute)
	defaults.Zero(&k.MaxPods, 110)
	if k.PodPidsLimit == nil || *k.PodPidsLimit < 0 {
		k.PodPidsLimit = new(int64(-1))
	}
	defaults.Nil(&k.OOMScoreAdj, int32(-999))
	defaults.Nil(&k.ResolverConfig, "/etc/resolv.conf")
	defaults.Nil(&k.CPUCFSQuota, true)
	defaults.Nil(&k.CPUCFSQuotaPeriod, metav1.Duration{Duration: defaultQuotaPeriod})
	defaults.Nil(&k.NodeStatusMaxImages, int32(50))
	defaults.Nil(&k.SerializeImagePulls, SerializesImagePulls(k.MaxParallelImagePulls))
	duration(&k.EvictionPressureTransitionPeriod, 5*time.Minute)
	defaults.Nil(&k.MergeDefaultEvictionSettings, false)
	if k.EvictionHard == nil || *k.MergeDefaultEvictionSettings {
		hard := map[string]string{
			"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%",
			"imagefs.available": "15%", "imagefs.inodesFree": "5%",
		}
		maps.Copy(hard, k.EvictionHard)
		k.EvictionHard = hard
	}
	defaults.Zero(&k.ContainerLogMaxSize, "10Mi")
	defaults.Nil(&k.ContainerLogMaxFiles, int32(5))
	defaults.Nil(&k.ContainerLogMonitorInterval, metav1.Duration{Duration: 10 * time.Second})
	defaults.Zero(&k.ConfigMapAndSecretChangeDetectionStrategy, kubeletconfig.WatchChangeDetectionStrategy)
	if k.EnforceNodeAllocatable == nil {
		k.EnforceNodeAllocatable = []string{"pods"}
	}
	defaults.Nil(&k.EnableProfilingHandler, true)
	defaults.Nil(&k.EnableDebugFlagsHandler, true)
	defaults.Zero(&k.CPUManagerPolicy, cpumanager.None)
	duration(&k.CPUManagerReconcilePeriod, 10*time.Second)
	defaults.Zero(&k.MemoryManagerPolicy, memorymanager.None)
	defaults.Zero(&k.TopologyManagerPolicy, topologymanager.None)
	defaults.Zero(&k.TopologyManagerScope, kubeletconfig.ContainerTopologyManagerScope)
	defaults.Nil(&k.EnableSystemLogHandler, true)
	defaults.Nil(&k.SeccompDefault, false)
	defaults.Zero(&k.MemoryReservationPolicy, kubeletconfig.NoneMemoryReservationPolicy)
	defaults.Nil(&k.RegisterNode, true)
	defaults.Nil(&k.LocalStorageCapacityIsolation, true)
	defaults.Nil(&k.CrashLoopBackOff.MaxContainerRestartPeriod, metav1.Duration{Duration: defaultRestartPeriod})
}

// SerializesImagePulls is the default of serializeImagePulls, which follows from
// maxParallelImagePulls.
func SerializesImagePulls(maxParallel *int32) bool { return maxParallel == nil || *maxParallel < 2 }

// paths returns how pods and plugins may name the kubelet's directories.
func (c *Config) paths() hostpath.Directories {
	logs := c.Configuration.PodLogsDir
	return hostpath.New(c.RootDirectory, logs, spec.LogLinkDirectory(logs))
}

// hostFile reads a file of the machine.
func (c *Config) hostFile(path string) ([]byte, error) {
	return c.Files.ReadFile(path, files.MaxHostFile)
}

// hasGroup reports whether the machine has a control group.
func (c *Config) hasGroup(path string) bool {
	return slices.ContainsFunc([]string{"/sys/fs/cgroup", "/sys/fs/cgroup/memory"}, func(root string) bool {
		_, err := c.Files.Stat(filepath.Join(root, path))
		return err == nil
	})
}

// systemCGroups returns the control groups of the kubelet's process and of the container
// runtime, "" for those that are not known or not there.
func (c *Config) systemCGroups() (kubelet, runtime string) {
	known := func(group string) string {
		if group == "" || !c.hasGroup(group) {
			return ""
		}
		return group
	}
	memberships, err := c.hostFile("/proc/self/cgroup")
	if err == nil {
		kubelet = known(cgroup.Membership(string(memberships)))
	}
	return kubelet, known(c.RuntimeProcess.CGroup)
}

// facts returns the properties of the node that do not change while the kubelet
// runs, and its addresses.
func (c *Config) facts() (spec.Node, error) {
	k := &c.Configuration
	capacity, err := c.Machine.Capacity()
	if err != nil {
		return spec.Node{}, fmt.Errorf("read the machine's capacity: %w", err)
	}
	reserved, err := allocatable.SystemReserved(k)
	if err != nil {
		return spec.Node{}, err
	}
	forPods := allocatable.Of(capacity, reserved)
	facts := spec.Node{
		Configuration: k, RootDirectory: c.RootDirectory, MemoryCapacity: capacity.Memory().Value(), MemoryForPods: forPods.Memory().Value(), SwapCapacity: c.limitableSwap(),
		HugePages: spec.HugePageSizes(capacity), ThermalThrottle: c.thermalThrottle(), IPs: c.current(),
	}
	return facts, nil
}

// current returns the node's addresses, which may change.
func (c *Config) current() *nodeaddress.List {
	if m, ok := c.Machine.(node.Addressed); ok {
		if list := m.Addresses(); list != nil {
			return list
		}
	}
	var configured []string
	for _, ip := range c.Addresses() {
		configured = append(configured, ip.String())
	}
	return nodeaddress.NewList(configured...)
}

// thermalThrottle returns the folders that say how hot the machine's CPUs got.
func (c *Config) thermalThrottle() (paths []string) {
	const root = "/sys/devices/system/cpu"
	names, err := c.Files.ReadDir(root)
	if err != nil { // a machine without it has nothing to hide
		return nil
	}
	for _, name := range names {
		path := filepath.Join(root, name, "thermal_throttle")
		if _, err := c.Files.Stat(path); err == nil {
			paths = append(paths, path)
		}
	}
	return paths
}
