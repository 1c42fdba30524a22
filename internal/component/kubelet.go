package component

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/client"
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

	fs *pflag.FlagSet
}

// NewKubelet returns upstream's defaults.
func NewKubelet() *Kubelet {
	k := &Kubelet{RootDir: "/var/lib/kubelet", HealthzPort: kubelet.DefaultHealthzPort, FailSwapOn: true}
	c := &k.Configuration
	c.ContainerRuntimeEndpoint = "unix:///run/containerd/containerd.sock"
	c.Port = kubelet.DefaultPort
	c.Address = "0.0.0.0"
	c.ClusterDomain = "cluster.local"
	c.MaxPods = 110
	c.CgroupDriver = "cgroupfs"
	c.NodeStatusUpdateFrequency.Duration = 10 * time.Second
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
	fs.BoolVar(&k.Anonymous, "anonymous-auth", k.Anonymous, "let requests without credentials through as system:anonymous")
	fs.StringToStringVar(&c.EvictionHard, "eviction-hard", c.EvictionHard, "thresholds, as memory.available=100Mi")
	fs.DurationVar(&c.NodeStatusUpdateFrequency.Duration, "node-status-update-frequency", c.NodeStatusUpdateFrequency.Duration, "how often node status is reported")
}

// Run runs the kubelet of a process of its own.
func (k *Kubelet) Run(ctx context.Context) error {
	var provider client.Provider
	if k.Kubeconfig != "" {
		var err error
		if provider, err = remote(k.Kubeconfig, "kubelet"); err != nil {
			return err
		}
	}
	config, err := k.Config(provider)
	if err != nil {
		return err
	}
	kl, err := kubelet.New(config)
	if err != nil {
		return err
	}
	return kl.Run(ctx)
}

// Config works out what a kubelet is made from.
func (k *Kubelet) Config(provider client.Provider) (kubelet.Config, error) {
	configuration, err := k.merged()
	if err != nil {
		return kubelet.Config{}, err
	}
	name := k.NodeName
	if name == "" {
		host, err := os.Hostname()
		if err != nil {
			return kubelet.Config{}, fmt.Errorf("name of this host (give one with --hostname-override): %w", err)
		}
		name = strings.ToLower(host)
	}
	c := kubelet.Config{NodeName: name, RootDirectory: k.RootDir, NodeLabels: k.NodeLabels, Configuration: *configuration}
	for _, s := range k.NodeIPs {
		ip := net.ParseIP(s)
		if ip == nil {
			return c, fmt.Errorf("--node-ip=%s: not an IP address", s)
		}
		c.NodeIPs = append(c.NodeIPs, ip)
	}
	for _, s := range k.Taints {
		taint, err := parseTaint(s)
		if err != nil {
			return c, err
		}
		c.Configuration.RegisterWithTaints = append(c.Configuration.RegisterWithTaints, taint)
	}
	if provider != nil {
		if c.Client, err = provider.As("system:node:"+name, "system:nodes", "system:authenticated"); err != nil {
			return c, err
		}
	}
	return c, nil
}

// merged lays the flags that were given over the configuration file.
func (k *Kubelet) merged() (*kubeletconfig.KubeletConfiguration, error) {
	c := k.Configuration
	c.HealthzPort, c.FailSwapOn = &k.HealthzPort, &k.FailSwapOn
	c.Authentication.Anonymous.Enabled = &k.Anonymous
	if k.ConfigFile == "" {
		return &c, nil
	}
	raw, err := os.ReadFile(k.ConfigFile)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	given := map[string]string{}
	k.fs.Visit(func(f *pflag.Flag) { given[f.Name] = f.Value.String() })
	own := c.EvictionHard
	c.EvictionHard = nil
	if err := yaml.UnmarshalStrict(raw, &c); err != nil {
		return nil, fmt.Errorf("--config=%s: %w", k.ConfigFile, err)
	}
	if c.EvictionHard == nil {
		c.EvictionHard = own
	}
	k.Configuration = c
	for name, value := range given {
		if slice, ok := k.fs.Lookup(name).Value.(pflag.SliceValue); ok {
			if err := slice.Replace(strings.Split(strings.Trim(value, "[]"), ",")); err != nil {
				return nil, err
			}
			continue
		}
		if err := k.fs.Set(name, strings.Trim(value, "[]")); err != nil {
			return nil, fmt.Errorf("--%s: %w", name, err)
		}
	}
	c = k.Configuration
	return &c, nil
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
