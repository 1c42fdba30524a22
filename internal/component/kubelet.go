package component

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/component/base"
	"github.com/coracle-io/coracle/internal/flagvalue"
	"github.com/coracle-io/coracle/internal/kubelet"
	"github.com/coracle-io/coracle/internal/kubelet/certificate"
	"github.com/coracle-io/coracle/internal/kubelet/image"
	"github.com/coracle-io/coracle/internal/kubelet/node"
	"github.com/coracle-io/coracle/internal/memory"
	"github.com/coracle-io/coracle/internal/nodeaddress"
	"github.com/coracle-io/coracle/internal/processes/notify"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Kubelet runs the pods of one node.
type Kubelet struct {
	// Config has the values of flags. Its Configuration has the values of the flags
	// in kubeletFields: ConfigFile overrides their defaults, and flags that were
	// given override ConfigFile.
	Config     kubelet.Config
	Kubeconfig string
	ConfigFile string
	Taints     []string
	// BootstrapKubeconfig has the credentials for a first client certificate, if
	// Kubeconfig does not exist.
	BootstrapKubeconfig string
	// ConfigDirectory has drop-in files (*.conf) that take precedence over
	// ConfigFile.
	ConfigDirectory string
	// ImageCredentialProviderConfig is the file or directory that says which
	// programs have logins for images. ImageCredentialProviderBinDir has the
	// programs.
	ImageCredentialProviderConfig string
	ImageCredentialProviderBinDir string

	fields   []*fieldValue
	ignored  kubeletIgnored
	fs       *pflag.FlagSet
	identity *certificate.Client // of a kubelet alone whose certificate is rotated
	service  notify.Notifier     // of a kubelet alone
}

// NewKubelet returns upstream's defaults.
func NewKubelet() *Kubelet {
	k := &Kubelet{ignored: newKubeletIgnored()}
	k.Config.RootDirectory, k.Config.CertDirectory = "/var/lib/kubelet", "/var/lib/kubelet/pki"
	kubelet.DefaultConfiguration(&k.Config.Configuration)
	return k
}

// AddFlags binds the flags to fs.
func (k *Kubelet) AddFlags(fs *pflag.FlagSet) {
	k.fs = fs
	fs.StringVar(&k.Kubeconfig, "kubeconfig", k.Kubeconfig, "kubeconfig file for the API server; without one, only static pods run")
	fs.StringVar(&k.BootstrapKubeconfig, "bootstrap-kubeconfig", k.BootstrapKubeconfig, "kubeconfig file for TLS bootstrap: it requests the client certificate of --kubeconfig, if that file does not exist or its certificate has expired")
	fs.StringVar(&k.Config.CertDirectory, "cert-dir", k.Config.CertDirectory, "directory of the kubelet's certificates")
	fs.StringVar(&k.ConfigFile, "config", k.ConfigFile, "KubeletConfiguration file; flags win over it")
	fs.StringVar(&k.ConfigDirectory, "config-dir", k.ConfigDirectory, "directory of KubeletConfiguration files (*.conf) that win over --config, the last by name over the others")
	fs.StringVar(&k.ImageCredentialProviderConfig, "image-credential-provider-config", k.ImageCredentialProviderConfig, "CredentialProviderConfig file, or directory of such files, of the image credential providers")
	fs.StringVar(&k.ImageCredentialProviderBinDir, "image-credential-provider-bin-dir", k.ImageCredentialProviderBinDir, "directory of the binaries of the image credential providers")
	fs.StringVar(&k.Config.NodeName, "hostname-override", k.Config.NodeName, "name of the node (default: the host's name)")
	fs.StringSliceVar(&k.Config.NodeIPs, "node-ip", k.Config.NodeIPs, "address of the node, or one of each family")
	fs.StringToStringVar(&k.Config.NodeLabels, "node-labels", k.Config.NodeLabels, "labels to register the node with")
	fs.StringSliceVar(&k.Taints, "register-with-taints", k.Taints, "taints to register the node with, such as key=value:effect")
	fs.StringVar(&k.Config.RootDirectory, "root-dir", k.Config.RootDirectory, "directory of the kubelet's files, such as volume mounts of pods")
	fs.StringVar(&k.Config.RuntimeProcess.CGroup, "runtime-cgroups", k.Config.RuntimeProcess.CGroup, "absolute name of the cgroup that the container runtime runs in, to show its usage in /stats/summary")
	k.fields = bindFields(fs, &k.Config.Configuration, kubeletFields())
	k.ignored.addFlags(fs)
	k.kinds(fs)
}

// kinds says what the values of the flags are.
func (k *Kubelet) kinds(fs *pflag.FlagSet) {
	flagvalue.Is(fs, flagvalue.File, "client-ca-file", "tls-cert-file", "tls-private-key-file", "resolv-conf")
	flagvalue.Is(fs, flagvalue.Path, "config", "config-dir", "root-dir", "pod-manifest-path", "kubeconfig", "bootstrap-kubeconfig", "cert-dir", "lock-file", "image-credential-provider-config", "image-credential-provider-bin-dir")
	flagvalue.Is(fs, flagvalue.Absolute, "cgroup-root", "runtime-cgroups")
	flagvalue.Is(fs, flagvalue.Address, "address", "cluster-dns", "node-ip")
	flagvalue.Is(fs, flagvalue.Ranges, "pod-cidr")
	flagvalue.Is(fs, flagvalue.Name, "hostname-override", "cluster-domain")
	flagvalue.Is(fs, flagvalue.URL, "manifest-url")
	flagvalue.Is(fs, flagvalue.Socket, "container-runtime-endpoint", "image-service-endpoint")
	flagvalue.Is(fs, flagvalue.Address, "healthz-bind-address")
	flagvalue.Is(fs, flagvalue.Path, "volume-plugin-dir")
	flagvalue.Is(fs, flagvalue.Number, "oom-score-adj")
	flagvalue.Is(fs, flagvalue.Limit, "node-status-max-images", "pod-max-pids")
	flagvalue.Is(fs, flagvalue.Quantity, "container-log-max-size")
	flagvalue.Is(fs, flagvalue.Sysctl, "allowed-unsafe-sysctls")
	flagvalue.OneOf(fs, "cgroup-driver", "cgroupfs", "systemd")
	flagvalue.OneOf(fs, "logging-format", "text", "json")
}

// CheckKubelet returns an error for arguments with which no kubelet of a cluster would
// run (see base.Set).
func CheckKubelet(arguments []string) error {
	k := NewKubelet()
	fs := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	k.AddFlags(fs)
	if err := base.Set("kubelet", fs, arguments); err != nil {
		return err
	}
	return k.Validate()
}

// KubeletOOMScoreAdj returns the OOM score adjustment of the process of a kubelet
// with the given arguments (see base.Set).
func KubeletOOMScoreAdj(arguments []string) (int, error) {
	k := NewKubelet()
	fs := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	k.AddFlags(fs)
	if err := base.Set("kubelet", fs, arguments); err != nil {
		return 0, err
	}
	return k.OOMScoreAdj()
}

// OOMScoreAdj returns the OOM score adjustment of the kubelet's process. The
// kubelet leaves it to its program.
func (k *Kubelet) OOMScoreAdj() (int, error) {
	c, err := k.merged()
	if err != nil {
		return 0, err
	}
	return int(*c.OOMScoreAdj), nil
}

// Run runs the kubelet in a process of its own, with the identity that its flags
// name.
func (k *Kubelet) Run(ctx context.Context) error {
	c, err := k.merged()
	if err != nil {
		return err
	}
	base.ApplyLogging(ctx, &c.Logging)
	alone := *k
	alone.service = notify.New()
	provider, err := alone.identify(ctx, c)
	if err == nil && k.Kubeconfig != "" && c.Authentication.X509.ClientCAFile == "" {
		alone.Config.ClientCAs, err = base.AuthorityOf(k.Kubeconfig)
	}
	if err != nil {
		return err
	}
	var run []func(context.Context) error
	if follower := alone.follow(provider); follower != nil {
		run = append(run, follower.Run)
	}
	if alone.identity != nil {
		run = append(run, func(ctx context.Context) error {
			alone.identity.Run(ctx)
			return nil
		})
	}
	return base.Together(ctx, append(run, func(ctx context.Context) error { return alone.RunWith(ctx, provider) })...)
}

// follow returns what keeps the node at the address of the machine, which it gives to the
// kubelet, or nil if that has --node-ip or finds no address.
func (k *Kubelet) follow(provider client.Provider) *nodeaddress.Follower {
	if len(k.Config.NodeIPs) > 0 {
		return nil
	}
	ip, err := node.DefaultIP()
	if err != nil {
		return nil // the kubelet fails for that reason
	}
	f := &nodeaddress.Follower{Machine: nodeaddress.Kernel{}, List: nodeaddress.NewList(ip.String())}
	if remote, ok := provider.(interface{ CloseConnections() }); ok {
		f.Moving = remote.CloseConnections
	}
	k.Config.Machine = &node.Local{Disk: k.Config.RootDirectory, IPs: f.List}
	return f
}

// identify returns a provider of clients of the API server, nil for a kubelet
// without one. It sets k.identity.
func (k *Kubelet) identify(ctx context.Context, c *kubeletconfig.KubeletConfiguration) (client.Provider, error) {
	if k.Kubeconfig == "" {
		if k.BootstrapKubeconfig != "" {
			return nil, errors.New("--bootstrap-kubeconfig needs --kubeconfig, the file to write when the certificate is issued")
		}
		return nil, nil
	}
	name, err := base.HostName(k.Config.NodeName)
	if err != nil {
		return nil, err
	}
	o := &certificate.ClientOptions{
		Kubeconfig: k.Kubeconfig, BootstrapKubeconfig: k.BootstrapKubeconfig, Directory: k.Config.CertDirectory, NodeName: name, UserAgent: "coracle/kubelet",
	}
	if c.RotateCertificates {
		if k.identity, err = certificate.NewClient(o); err != nil {
			return nil, err
		}
		return k.identity.Provider(), nil
	}
	if k.BootstrapKubeconfig != "" {
		if err := certificate.Bootstrap(ctx, o); err != nil {
			return nil, err
		}
	}
	return base.Remote("", k.Kubeconfig, "kubelet")
}

// RunWith runs the kubelet with a client of the given provider until ctx ends. A
// nil provider means static pods only.
func (k *Kubelet) RunWith(ctx context.Context, provider client.Provider) error {
	config, provider, err := k.config(ctx, provider)
	if err != nil {
		return err
	}
	base.ApplyLogging(ctx, &config.Configuration.Logging)
	warnings, err := kubelet.Warnings(&config.Configuration)
	if err != nil {
		return err
	}
	for _, warning := range warnings {
		klog.FromContext(ctx).Info(warning)
	}
	kl, err := kubelet.New(config)
	if err != nil {
		return err
	}
	if traces := config.Diagnostics.Tracing; traces != nil {
		stop, err := traces.Start(ctx)
		if err != nil {
			return err
		}
		defer stop()
	}
	run := []func(context.Context) error{kl.Run, func(ctx context.Context) error {
		keepAlive(ctx, k.service, kl.Healthy)
		return nil
	}}
	if provider != nil {
		run = append(run, provider.Run)
	}
	return base.Together(ctx, run...)
}

// keepAlive tells the service manager that the kubelet has started, and, if it wants to
// know, that it is healthy, until ctx ends. A kubelet that is not is ended and started
// again. It corresponds to SystemdWatchdog.
func keepAlive(ctx context.Context, service notify.Notifier, healthy func() error) {
	service.Send("READY=1")
	if service.Watchdog == 0 {
		return
	}
	supervise.Every(ctx, service.Watchdog, func() {
		if err := healthy(); err != nil {
			klog.FromContext(ctx).Error(err, "Did not tell the service manager's watchdog that the kubelet is healthy")
			return
		}
		service.Send("WATCHDOG=1")
	})
}

// Validate returns all errors in the flags and the files of --config and
// --config-dir of a kubelet for RunWith.
func (k *Kubelet) Validate() error {
	config, _, err := k.config(context.Background(), nil)
	if err != nil {
		return err
	}
	c := &config.Configuration
	kubelet.DefaultConfiguration(c)
	errs := []error{kubelet.Validate(c)}
	for _, own := range []struct {
		name  string
		given bool
	}{
		{"--kubeconfig", k.Kubeconfig != ""}, {"--bootstrap-kubeconfig", k.BootstrapKubeconfig != ""},
		{"rotateCertificates (--rotate-certificates)", c.RotateCertificates}, {"serverTLSBootstrap (--rotate-server-certificates)", c.ServerTLSBootstrap},
	} {
		if own.given {
			errs = append(errs, fmt.Errorf("invalid configuration: %s is for a kubelet alone: the cluster issues and renews the certificates of this one", own.name))
		}
	}
	return errors.Join(errs...)
}

// config returns the kubelet's configuration and the provider of its client.
func (k *Kubelet) config(ctx context.Context, provider client.Provider) (kubelet.Config, client.Provider, error) {
	counts := base.NewCounts(ctx)
	if err := k.ignored.validate(); err != nil {
		return kubelet.Config{}, nil, err
	}
	configuration, err := k.merged()
	if err != nil {
		return kubelet.Config{}, nil, err
	}
	gates, err := kubelet.Features(configuration)
	if err != nil {
		return kubelet.Config{}, nil, err
	}
	c := k.Config
	c.Configuration, c.Metrics, c.Diagnostics.Pages = *configuration, counts.Registry, map[string]http.Handler{}
	c.Memory = memory.NewBudget(memory.ProcessLimit())
	if k.identity != nil {
		certificate.ShowClient(c.Metrics, k.identity)
	}
	if c.NodeName, err = base.HostName(k.Config.NodeName); err != nil {
		return c, nil, err
	}
	c.Diagnostics.Tracing = kubelet.NewTracing(configuration, c.NodeName)
	base.AddZPages(c.Diagnostics.Pages, "kubelet", base.ValuesOf(k.fs), gates, "/configz", "/healthz", "/metrics")
	for _, s := range k.Taints {
		taint, err := parseTaint(s)
		if err != nil {
			return c, nil, err
		}
		c.Configuration.RegisterWithTaints = append(c.Configuration.RegisterWithTaints, taint)
	}
	if (k.ImageCredentialProviderConfig == "") != (k.ImageCredentialProviderBinDir == "") {
		return c, nil, errors.New("--image-credential-provider-config and --image-credential-provider-bin-dir go together: give both or neither")
	}
	if k.ImageCredentialProviderConfig != "" {
		if c.CredentialProviders, err = image.ReadProviders(k.ImageCredentialProviderConfig, k.ImageCredentialProviderBinDir); err != nil {
			return c, nil, err
		}
	}
	if provider != nil {
		wrap := counts.Clients.Wrap
		if traces := c.Diagnostics.Tracing; traces != nil {
			wrap = func(next http.RoundTripper) http.RoundTripper { return counts.Clients.Wrap(traces.Transport(next)) }
		}
		if provider, err = provider.WithTransport(wrap); err != nil {
			return c, nil, err
		}
		if c.Client, err = provider.As("system:node:"+c.NodeName, "system:nodes", "system:authenticated"); err != nil {
			return c, nil, err
		}
	}
	return c, provider, nil
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
