package component

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	cliflag "k8s.io/component-base/cli/flag"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/component/base"
	"github.com/coracle-io/coracle/internal/kubelet"
)

// Kubelet runs the pods of one node.
type Kubelet struct {
	Kubeconfig string
	ConfigFile string
	NodeName   string
	NodeIPs    []string
	NodeLabels map[string]string
	Taints     []string
	RootDir    string
	// Configuration has what the flags set; Run lays it over ConfigFile.
	Configuration kubeletconfig.KubeletConfiguration
	Anonymous     bool
	HealthzPort   int32
	FailSwapOn    bool
	RegisterNode  bool
	// ResolverConfig is "" for none.
	ResolverConfig string
	// ReservedPorts are ports of the node on which the cluster itself serves;
	// no pod gets them as host ports.
	ReservedPorts []int

	fs *pflag.FlagSet
}

// NewKubelet returns upstream's defaults.
func NewKubelet() *Kubelet {
	k := &Kubelet{RootDir: "/var/lib/kubelet", HealthzPort: kubelet.DefaultHealthzPort, FailSwapOn: true, RegisterNode: true, ResolverConfig: "/etc/resolv.conf"}
	c := &k.Configuration
	kubelet.DefaultConfiguration(c)
	c.ContainerRuntimeEndpoint = "unix:///run/containerd/containerd.sock"
	c.ClusterDomain = "cluster.local"
	return k
}

// AddFlags binds the flags.
func (k *Kubelet) AddFlags(fs *pflag.FlagSet) {
	k.fs = fs
	c := &k.Configuration
	fs.StringVar(&k.Kubeconfig, "kubeconfig", k.Kubeconfig, "where the API server is and who this is; none runs static pods only")
	fs.StringVar(&k.ConfigFile, "config", k.ConfigFile, "KubeletConfiguration file; flags win over it")
	fs.StringVar(&k.NodeName, "hostname-override", k.NodeName, "name of the node (default: the host's name)")
	fs.StringSliceVar(&k.NodeIPs, "node-ip", k.NodeIPs, "address of the node, or one of each family")
	fs.StringToStringVar(&k.NodeLabels, "node-labels", k.NodeLabels, "labels to register the node with")
	fs.StringSliceVar(&k.Taints, "register-with-taints", k.Taints, "taints to register the node with, as key=value:effect")
	fs.StringVar(&k.RootDir, "root-dir", k.RootDir, "directory of the pods' volumes")
	fs.StringVar(&c.ContainerRuntimeEndpoint, "container-runtime-endpoint", c.ContainerRuntimeEndpoint, "socket of the CRI runtime")
	fs.StringVar(&c.ImageServiceEndpoint, "image-service-endpoint", c.ImageServiceEndpoint, "socket of the CRI image service (default: that of the runtime)")
	fs.StringVar(&c.StaticPodPath, "pod-manifest-path", c.StaticPodPath, "folder of static pod manifests")
	fs.StringVar(&c.StaticPodURL, "manifest-url", c.StaticPodURL, "URL of static pod manifests")
	fs.Var(cliflag.NewColonSeparatedMultimapStringString(&c.StaticPodURLHeader), "manifest-url-header", "headers to ask for --manifest-url with, as name:value,name:value")
	fs.DurationVar(&c.FileCheckFrequency.Duration, "file-check-frequency", c.FileCheckFrequency.Duration, "how often the folder of static pods is read")
	fs.DurationVar(&c.HTTPCheckFrequency.Duration, "http-check-frequency", c.HTTPCheckFrequency.Duration, "how often the URL of static pods is read")
	fs.StringSliceVar(&c.ClusterDNS, "cluster-dns", c.ClusterDNS, "addresses of the cluster DNS")
	fs.StringVar(&c.ClusterDomain, "cluster-domain", c.ClusterDomain, "DNS domain of the cluster")
	fs.StringVar(&c.PodCIDR, "pod-cidr", c.PodCIDR, "addresses of pods when there is no API server")
	fs.StringVar(&c.Address, "address", c.Address, "address to serve on")
	fs.Int32Var(&c.Port, "port", c.Port, "port to serve HTTPS on")
	fs.Int32Var(&k.HealthzPort, "healthz-port", k.HealthzPort, "port of /healthz on loopback; 0 is none")
	fs.Int32Var(&c.MaxPods, "max-pods", c.MaxPods, "most pods on this node")
	fs.StringVar(&c.CgroupDriver, "cgroup-driver", c.CgroupDriver, "cgroupfs or systemd")
	fs.StringVar(&c.CgroupRoot, "cgroup-root", c.CgroupRoot, "cgroup that those of the pods are below")
	fs.BoolVar(&k.FailSwapOn, "fail-swap-on", k.FailSwapOn, "refuse to start where swap is on")
	fs.StringVar(&c.Authentication.X509.ClientCAFile, "client-ca-file", c.Authentication.X509.ClientCAFile, "authority of the client certificates of those who call this kubelet (default: that of --kubeconfig)")
	fs.StringVar(&c.TLSCertFile, "tls-cert-file", c.TLSCertFile, "certificate to serve with (default: one that the kubelet signs itself)")
	fs.StringVar(&c.TLSPrivateKeyFile, "tls-private-key-file", c.TLSPrivateKeyFile, "key of --tls-cert-file")
	fs.StringVar((*string)(&c.Authorization.Mode), "authorization-mode", string(c.Authorization.Mode), "Webhook asks the API server, AlwaysAllow nobody")
	fs.StringVar(&k.ResolverConfig, "resolv-conf", k.ResolverConfig, "names the resolvers of pods with the DNS policy Default")
	fs.BoolVar(&k.RegisterNode, "register-node", k.RegisterNode, "make the Node object where it is missing")
	fs.BoolVar(&k.Anonymous, "anonymous-auth", k.Anonymous, "let requests without credentials through as system:anonymous")
	fs.DurationVar(&c.NodeStatusUpdateFrequency.Duration, "node-status-update-frequency", c.NodeStatusUpdateFrequency.Duration, "how often node status is reported")
	k.addResourceFlags(fs)
}

// addResourceFlags binds the flags about what pods and images may use.
func (k *Kubelet) addResourceFlags(fs *pflag.FlagSet) {
	c := &k.Configuration
	fs.Var(cliflag.NewLangleSeparatedMapStringString(&c.EvictionHard), "eviction-hard", "what must be left of the node, as memory.available<100Mi,nodefs.available<10%; below it pods are evicted at once")
	fs.Var(cliflag.NewLangleSeparatedMapStringString(&c.EvictionSoft), "eviction-soft", "what must be left of the node but for a while; below it for longer pods are evicted")
	fs.Var(cliflag.NewMapStringString(&c.EvictionSoftGracePeriod), "eviction-soft-grace-period", "how long a soft threshold may be passed, as memory.available=1m30s")
	fs.Int32Var(&c.EvictionMaxPodGracePeriod, "eviction-max-pod-grace-period", c.EvictionMaxPodGracePeriod, "most seconds that a pod evicted for a soft threshold gets to end")
	fs.DurationVar(&c.EvictionPressureTransitionPeriod.Duration, "eviction-pressure-transition-period", c.EvictionPressureTransitionPeriod.Duration, "how long the node stays under pressure after it was last seen")
	fs.Var(cliflag.NewMapStringString(&c.SystemReserved), "system-reserved", "what pods may not request because the system needs it, as cpu=200m,memory=500Mi")
	fs.Var(cliflag.NewMapStringString(&c.KubeReserved), "kube-reserved", "what pods may not request because Kubernetes itself needs it, as cpu=200m,memory=500Mi")
	fs.BoolVar(c.LocalStorageCapacityIsolation, "local-storage-capacity-isolation", *c.LocalStorageCapacityIsolation, "enforce limits of ephemeral storage")
	fs.Int64Var(c.PodPidsLimit, "pod-max-pids", *c.PodPidsLimit, "most processes in a pod; -1 is the node's own limit")
	fs.BoolVar(c.CPUCFSQuota, "cpu-cfs-quota", *c.CPUCFSQuota, "enforce limits of CPU")
	fs.StringSliceVar(&c.AllowedUnsafeSysctls, "allowed-unsafe-sysctls", c.AllowedUnsafeSysctls, "sysctls that pods may set beyond the safe ones; * at the end stands for anything")
	fs.Int32Var(c.ImageGCHighThresholdPercent, "image-gc-high-threshold", *c.ImageGCHighThresholdPercent, "percent of the disk in use from which unused images are removed; 100 is never")
	fs.Int32Var(c.ImageGCLowThresholdPercent, "image-gc-low-threshold", *c.ImageGCLowThresholdPercent, "percent of the disk in use down to which unused images are removed")
	fs.DurationVar(&c.ImageMinimumGCAge.Duration, "minimum-image-ttl-duration", c.ImageMinimumGCAge.Duration, "how long an image is kept after it was last used, at least")
	fs.BoolVar(c.SerializeImagePulls, "serialize-image-pulls", *c.SerializeImagePulls, "pull one image at a time")
	fs.Int32Var(c.RegistryPullQPS, "registry-qps", *c.RegistryPullQPS, "most pulls a second; 0 is any number")
	fs.Int32Var(&c.RegistryBurst, "registry-burst", c.RegistryBurst, "most pulls at once, while --registry-qps is not exceeded over time")
	fs.Int32Var(c.EventRecordQPS, "event-qps", *c.EventRecordQPS, "most events written a second; 0 is any number")
	fs.Int32Var(&c.EventBurst, "event-burst", c.EventBurst, "most events written at once, while --event-qps is not exceeded over time")
	fs.StringVar(&c.ContainerLogMaxSize, "container-log-max-size", c.ContainerLogMaxSize, "size from which a container's log is rotated")
	fs.Int32Var(c.ContainerLogMaxFiles, "container-log-max-files", *c.ContainerLogMaxFiles, "files kept of a container's log")
}

// Run runs the kubelet of a process of its own.
func (k *Kubelet) Run(ctx context.Context) error {
	var provider client.Provider
	if k.Kubeconfig != "" {
		var err error
		if provider, err = base.Remote(k.Kubeconfig, "kubelet"); err != nil {
			return err
		}
	}
	return k.RunWith(ctx, provider, func(config *kubelet.Config) (err error) {
		if k.Kubeconfig != "" && config.Configuration.Authentication.X509.ClientCAFile == "" {
			config.ClientCAs, err = base.AuthorityOf(k.Kubeconfig)
		}
		return err
	})
}

// RunWith runs the kubelet with a client of the given provider, nil for static
// pods only, until ctx ends. complete adds to what it is made from.
func (k *Kubelet) RunWith(ctx context.Context, provider client.Provider, complete func(*kubelet.Config) error) error {
	config, provider, err := k.config(ctx, provider)
	if err == nil {
		err = complete(&config)
	}
	if err != nil {
		return err
	}
	kl, err := kubelet.New(config)
	if err != nil {
		return err
	}
	if provider == nil {
		return kl.Run(ctx)
	}
	return base.Together(ctx, provider.Run, kl.Run)
}

// Validate reports what is wrong with the flags and the file of --config.
func (k *Kubelet) Validate() error {
	config, _, err := k.config(context.Background(), nil)
	if err != nil {
		return err
	}
	kubelet.DefaultConfiguration(&config.Configuration)
	return kubelet.Validate(&config.Configuration)
}

// config works out what a kubelet is made from, and the provider of its client.
func (k *Kubelet) config(ctx context.Context, provider client.Provider) (kubelet.Config, client.Provider, error) {
	counts := base.NewCounts(ctx)
	if provider != nil {
		var err error
		if provider, err = counts.Of(provider); err != nil {
			return kubelet.Config{}, nil, err
		}
	}
	configuration, err := k.merged()
	if err != nil {
		return kubelet.Config{}, nil, err
	}
	name, err := base.HostName(k.NodeName)
	if err != nil {
		return kubelet.Config{}, nil, err
	}
	c := kubelet.Config{NodeName: name, RootDirectory: k.RootDir, NodeLabels: k.NodeLabels, Configuration: *configuration, Metrics: counts.Registry, ReservedPorts: k.ReservedPorts}
	for _, s := range k.NodeIPs {
		ip := net.ParseIP(s)
		if ip == nil {
			return c, nil, fmt.Errorf("--node-ip=%s: not an IP address", s)
		}
		c.NodeIPs = append(c.NodeIPs, ip)
	}
	for _, s := range k.Taints {
		taint, err := parseTaint(s)
		if err != nil {
			return c, nil, err
		}
		c.Configuration.RegisterWithTaints = append(c.Configuration.RegisterWithTaints, taint)
	}
	if provider != nil {
		if c.Client, err = provider.As("system:node:"+name, "system:nodes", "system:authenticated"); err != nil {
			return c, nil, err
		}
	}
	return c, provider, nil
}

// merged lays the configuration file over the defaults, and over both the
// flags that were given.
func (k *Kubelet) merged() (*kubeletconfig.KubeletConfiguration, error) {
	all := *k
	c := &all.Configuration
	k.Configuration.DeepCopyInto(c)
	c.HealthzPort, c.FailSwapOn = &all.HealthzPort, &all.FailSwapOn
	c.RegisterNode, c.ResolverConfig = &all.RegisterNode, &all.ResolverConfig
	c.Authentication.Anonymous.Enabled = &all.Anonymous
	if k.ConfigFile == "" {
		return c, nil
	}
	raw, err := os.ReadFile(k.ConfigFile)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	file := &kubeletconfig.KubeletConfiguration{}
	if err := yaml.UnmarshalStrict(raw, file); err != nil {
		return nil, fmt.Errorf("--config=%s: %w", k.ConfigFile, err)
	}
	for _, whole := range []struct{ file, all *map[string]string }{ // a map of the file replaces the one before it
		{&file.EvictionHard, &c.EvictionHard}, {&file.EvictionSoft, &c.EvictionSoft}, {&file.EvictionSoftGracePeriod, &c.EvictionSoftGracePeriod},
		{&file.SystemReserved, &c.SystemReserved}, {&file.KubeReserved, &c.KubeReserved},
	} {
		if *whole.file != nil {
			*whole.all = nil
		}
	}
	if err := yaml.UnmarshalStrict(raw, c); err != nil {
		return nil, fmt.Errorf("--config=%s: %w", k.ConfigFile, err)
	}
	flags := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	all.AddFlags(flags)
	var failed error
	k.fs.Visit(func(f *pflag.Flag) {
		value := f.Value.String()
		if _, list := f.Value.(pflag.SliceValue); list || f.Value.Type() == "stringToString" {
			value = strings.TrimSuffix(strings.TrimPrefix(value, "["), "]")
		}
		if err := flags.Set(f.Name, value); err != nil {
			failed = errors.Join(failed, fmt.Errorf("--%s: %w", f.Name, err))
		}
	})
	return c, failed
}

func parseTaint(s string) (v1.Taint, error) {
	keyValue, effect, ok := strings.Cut(s, ":")
	key, value, _ := strings.Cut(keyValue, "=")
	t := v1.Taint{Key: key, Value: value, Effect: v1.TaintEffect(effect)}
	switch t.Effect {
	case v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute:
	default:
		ok = false
	}
	if !ok || key == "" {
		return t, fmt.Errorf("--register-with-taints=%s: want key=value:effect, with the effect NoSchedule, PreferNoSchedule or NoExecute", s)
	}
	return t, nil
}
