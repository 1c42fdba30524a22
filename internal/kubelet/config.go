package kubelet

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	internalapi "k8s.io/cri-api/pkg/apis"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/kubelet/cgroup"
	"github.com/coracle-io/coracle/internal/kubelet/eviction"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/image"
	"github.com/coracle-io/coracle/internal/kubelet/node"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	registry "github.com/coracle-io/coracle/internal/metrics"
)

// Config is all that a kubelet is made from.
type Config struct {
	// Client is the node's own identity (system:node:NAME). Nil runs static
	// pods only.
	Client *client.Client
	// NodeName is the name of the Node object, Hostname that of the machine.
	NodeName string
	Hostname string // default: NodeName
	// RootDirectory keeps the pods' volumes (/var/lib/kubelet).
	RootDirectory string
	// ReservedPorts are ports of the node on which the cluster itself serves.
	ReservedPorts []int
	// NodeIPs are the node's addresses, primary first; default: of the
	// interface with the default route.
	NodeIPs    []net.IP
	NodeLabels map[string]string
	// Configuration is upstream's; Default fills in its defaults.
	Configuration kubeletconfig.KubeletConfiguration

	// Runtime and Images override Configuration.ContainerRuntimeEndpoint.
	Runtime internalapi.RuntimeService
	Images  internalapi.ImageManagerService

	// The machine; nil is the real one.
	Files   files.FS
	Mounter files.Mounter
	Groups  cgroup.Groups
	Machine node.Machine

	// GetCertificate is the server's certificate; nil makes a self-signed one
	// unless Configuration names files.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// ClientCAs verify the API server's client certificate; nil reads
	// Configuration.Authentication.X509.ClientCAFile.
	ClientCAs func() *x509.CertPool
	// Metrics is what /metrics shows; nil is a registry of its own.
	Metrics *registry.Registry
	// Authenticator and Authorizer override those made from Configuration.
	Authenticator authenticator.Request
	Authorizer    authorizer.Authorizer
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func setp[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
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
)

// Default fills in what is not set, and refuses what this kubelet cannot do.
func (c *Config) Default() error {
	if c.NodeName == "" {
		return fmt.Errorf("the kubelet needs a node name (--hostname-override)")
	}
	set(&c.Hostname, c.NodeName)
	set(&c.RootDirectory, "/var/lib/kubelet")
	k := &c.Configuration
	DefaultConfiguration(k)
	set(&k.ImageServiceEndpoint, k.ContainerRuntimeEndpoint)
	if err := Validate(k); err != nil {
		return err
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
	if c.Machine == nil {
		c.Machine = &node.Local{Disk: c.RootDirectory}
	}
	if c.Metrics == nil {
		c.Metrics = registry.NewRegistry(nil)
	}
	if len(c.NodeIPs) == 0 {
		ip, err := node.DefaultIP()
		if err != nil {
			return fmt.Errorf("find the node's address (--node-ip sets it): %w", err)
		}
		c.NodeIPs = []net.IP{ip}
	}
	return nil
}

// Validate reports what no kubelet can do, of a configuration with its defaults.
func Validate(k *kubeletconfig.KubeletConfiguration) error {
	var errs []error
	if k.CgroupDriver != "cgroupfs" {
		errs = append(errs, fmt.Errorf("--cgroup-driver=%s is not supported on this node: pods get their control groups from the kubelet directly; use cgroupfs, here and in the container runtime (containerd: SystemdCgroup = false)", k.CgroupDriver))
	}
	switch k.Authorization.Mode {
	case kubeletconfig.KubeletAuthorizationModeWebhook, kubeletconfig.KubeletAuthorizationModeAlwaysAllow:
	default:
		errs = append(errs, fmt.Errorf("--authorization-mode=%s: want Webhook or AlwaysAllow", k.Authorization.Mode))
	}
	_, err := eviction.Thresholds(k)
	errs = append(errs, err)
	if _, err := node.Reserved(k); err != nil {
		errs = append(errs, fmt.Errorf("--system-reserved or --kube-reserved: %w", err))
	}
	if _, err := resource.ParseQuantity(k.ContainerLogMaxSize); err != nil {
		errs = append(errs, fmt.Errorf("--container-log-max-size=%s: want a quantity such as 10Mi", k.ContainerLogMaxSize))
	}
	return errors.Join(append(errs, image.CheckPolicy(k.ImagePullCredentialsVerificationPolicy, k.PreloadedImagesVerificationAllowlist))...)
}

// DefaultConfiguration fills in upstream's defaults for what is not set.
func DefaultConfiguration(k *kubeletconfig.KubeletConfiguration) {
	setp(&k.EnableServer, true)
	set(&k.PodLogsDir, "/var/log/pods")
	duration(&k.SyncFrequency, time.Minute)
	duration(&k.FileCheckFrequency, 20*time.Second)
	duration(&k.HTTPCheckFrequency, 20*time.Second)
	set(&k.Address, "0.0.0.0")
	set(&k.Port, DefaultPort)
	setp(&k.HealthzPort, int32(DefaultHealthzPort))
	set(&k.HealthzBindAddress, "127.0.0.1")
	setp(&k.Authentication.Anonymous.Enabled, false)
	setp(&k.Authentication.Webhook.Enabled, true)
	duration(&k.Authentication.Webhook.CacheTTL, 2*time.Minute)
	set(&k.Authorization.Mode, kubeletconfig.KubeletAuthorizationModeWebhook)
	duration(&k.Authorization.Webhook.CacheAuthorizedTTL, 5*time.Minute)
	duration(&k.Authorization.Webhook.CacheUnauthorizedTTL, 30*time.Second)
	setp(&k.RegistryPullQPS, int32(5))
	set(&k.RegistryBurst, 10)
	set(&k.ImagePullCredentialsVerificationPolicy, kubeletconfig.NeverVerifyPreloadedImages)
	setp(&k.EventRecordQPS, int32(50))
	set(&k.EventBurst, 100)
	setp(&k.EnableDebuggingHandlers, true)
	duration(&k.StreamingConnectionIdleTimeout, 4*time.Hour)
	duration(&k.NodeStatusUpdateFrequency, 10*time.Second)
	if k.NodeStatusReportFrequency.Duration == 0 {
		k.NodeStatusReportFrequency.Duration = 5 * time.Minute
	}
	set(&k.NodeLeaseDurationSeconds, 40)
	duration(&k.ImageMinimumGCAge, 2*time.Minute)
	setp(&k.ImageGCHighThresholdPercent, int32(85))
	setp(&k.ImageGCLowThresholdPercent, int32(80))
	duration(&k.VolumeStatsAggPeriod, time.Minute)
	setp(&k.CgroupsPerQOS, true)
	set(&k.CgroupDriver, "cgroupfs")
	duration(&k.RuntimeRequestTimeout, 2*time.Minute)
	set(&k.MaxPods, 110)
	setp(&k.PodPidsLimit, int64(-1))
	setp(&k.ResolverConfig, "/etc/resolv.conf")
	setp(&k.CPUCFSQuota, true)
	setp(&k.NodeStatusMaxImages, int32(50))
	setp(&k.SerializeImagePulls, true)
	duration(&k.EvictionPressureTransitionPeriod, 5*time.Minute)
	if k.EvictionHard == nil {
		k.EvictionHard = map[string]string{
			"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%",
			"imagefs.available": "15%", "imagefs.inodesFree": "5%",
		}
	}
	set(&k.ContainerLogMaxSize, "10Mi")
	setp(&k.ContainerLogMaxFiles, int32(5))
	setp(&k.ContainerLogMonitorInterval, metav1.Duration{Duration: 10 * time.Second})
	set(&k.ConfigMapAndSecretChangeDetectionStrategy, kubeletconfig.WatchChangeDetectionStrategy)
	if k.EnforceNodeAllocatable == nil {
		k.EnforceNodeAllocatable = []string{"pods"}
	}
	setp(&k.EnableProfilingHandler, true)
	setp(&k.EnableSystemLogHandler, true)
	setp(&k.SeccompDefault, false)
	setp(&k.RegisterNode, true)
	setp(&k.LocalStorageCapacityIsolation, true)
	setp(&k.CrashLoopBackOff.MaxContainerRestartPeriod, metav1.Duration{Duration: 5 * time.Minute})
}

// enforced returns what all pods together may use, as enforceNodeAllocatable
// has it; nil if it does not limit them.
func (c *Config) enforced() func() (v1.ResourceList, error) {
	if !slices.Contains(c.Configuration.EnforceNodeAllocatable, "pods") {
		return nil
	}
	return func() (v1.ResourceList, error) {
		capacity, err := c.Machine.Capacity()
		if err != nil {
			return nil, err
		}
		reserved, err := node.SystemReserved(&c.Configuration)
		if err != nil {
			return nil, err
		}
		return node.Allocatable(capacity, reserved), nil
	}
}

// SeccompRoot is the folder of the node's seccomp profiles.
func (c *Config) SeccompRoot() string { return filepath.Join(c.RootDirectory, "seccomp") }

// hostFile reads a file of the machine's own.
func (c *Config) hostFile(path string) ([]byte, error) {
	return c.Files.ReadFile(path, files.MaxHostFile)
}

// facts are what the kubelet knows of its node from the start.
func (c *Config) facts() (spec.Node, error) {
	k := &c.Configuration
	capacity, err := c.Machine.Capacity()
	if err != nil {
		return spec.Node{}, fmt.Errorf("read the machine's capacity: %w", err)
	}
	reserved, err := node.Reserved(k)
	if err != nil {
		return spec.Node{}, err
	}
	facts := spec.Node{
		Name: c.NodeName, Hostname: c.Hostname, ClusterDNS: k.ClusterDNS, ClusterDomain: k.ClusterDomain, PodLogsDir: k.PodLogsDir,
		MemoryCapacity: capacity.Memory().Value(), Allocatable: node.Allocatable(capacity, reserved),
		CFSQuota: *k.CPUCFSQuota, SeccompDefault: *k.SeccompDefault, SeccompRoot: c.SeccompRoot(), DefaultSysctls: k.DefaultPodSysctls,
	}
	for _, ip := range c.NodeIPs {
		facts.IPs = append(facts.IPs, ip.String())
	}
	if path := *k.ResolverConfig; path != "" {
		facts.ResolvConf, _ = c.hostFile(path)
	}
	return facts, nil
}
