package component

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/component/base"
	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/flagvalue"
	"github.com/coracle-io/coracle/internal/proxy"
	"github.com/coracle-io/coracle/internal/proxy/configv1alpha1"
	"github.com/coracle-io/coracle/internal/proxy/conntrack"
	"github.com/coracle-io/coracle/internal/proxy/localport"
	"github.com/coracle-io/coracle/internal/proxy/nftables"
)

// Proxy makes Services reachable on one node.
type Proxy struct {
	// These are defaults of flags and of fields of the file of --config: the name of
	// the node, the ranges of pods, the ports of /healthz and /metrics, 0 for none, and
	// how many connections the kernel tracks for each processor, 0 for its own limit.
	// They are set before AddFlags.
	NodeName            string
	ClusterCIDR         string
	HealthzPort         int
	MetricsPort         int
	ConntrackMaxPerCore int32
	// Table is the nftables table; each cluster on a machine has its own.
	Table   string
	Cleanup bool
	// Reserved and NeighbourPorts are as in proxy.Config.
	Reserved       []int
	NeighbourPorts func() []int
	// Collectors are served with the proxy's own metrics.
	Collectors []prometheus.Collector

	source proxySource
}

// The ports of upstream's servers.
const healthzPort, metricsPort = 10256, 10249

// NewProxy returns upstream's defaults.
func NewProxy() *Proxy {
	return &Proxy{Table: "kube-proxy", HealthzPort: healthzPort, MetricsPort: metricsPort, ConntrackMaxPerCore: 32 << 10, source: proxySource{ignored: ignoredProxyFlags()}}
}

// AddFlags binds the flags to fs.
func (p *Proxy) AddFlags(fs *pflag.FlagSet) {
	p.source.addFlags(fs, p.defaults(), cmp.Or(p.HealthzPort, healthzPort), cmp.Or(p.MetricsPort, metricsPort))
	fs.StringVar(&p.Table, "nftables-table", p.Table, "name of the nftables table")
	fs.BoolVar(&p.Cleanup, "cleanup", p.Cleanup, "remove the rules that a proxy left behind, and exit")
	flagvalue.Is(fs, flagvalue.Table, "nftables-table")
}

// defaults returns the configuration without flags and file.
func (p *Proxy) defaults() *configv1alpha1.KubeProxyConfiguration {
	c := configv1alpha1.Defaults()
	c.HostnameOverride, c.ClusterCIDR = p.NodeName, p.ClusterCIDR
	c.HealthzBindAddress, c.MetricsBindAddress = listenAt("0.0.0.0", p.HealthzPort), listenAt("127.0.0.1", p.MetricsPort)
	c.Conntrack.MaxPerCore = new(p.ConntrackMaxPerCore)
	return c
}

// load returns what the flags, the file and the defaults say together.
func (p *Proxy) load() (*proxySettings, error) { return p.source.load(p.defaults()) }

// Run proxies in a process of its own.
func (p *Proxy) Run(ctx context.Context) error {
	if p.Cleanup {
		return p.RemoveRules()
	}
	s, err := p.load()
	if err != nil {
		return err
	}
	if p.source.writeConfigTo != "" {
		return s.write(ctx, p.source.writeConfigTo)
	}
	if p.source.initOnly {
		conntrackOf(&s.config.Conntrack, runtime.NumCPU()).Apply(klog.FromContext(ctx))
		return nil
	}
	provider, err := base.Remote(p.source.master, s.config.ClientConnection.Kubeconfig, "kube-proxy")
	if err != nil {
		return err
	}
	return p.RunWith(ctx, provider)
}

// RunWith proxies with a client of the given provider until ctx ends. The
// rules stay, so that Services are reachable while a proxy restarts.
func (p *Proxy) RunWith(ctx context.Context, provider client.Provider) error {
	s, err := p.load()
	if err != nil {
		return err
	}
	for _, warning := range s.warnings {
		klog.FromContext(ctx).Info("Warning: " + warning)
	}
	counts := base.NewCounts(ctx)
	counts.MustRegister(p.Collectors...)
	backend := p.backend(ctx, s, counts.Registry)
	c := proxy.Config{
		Backend: backend, Families: []v1.IPFamily{v1.IPv4Protocol}, ClusterCIDRs: s.clusterCIDRs, NodePortAddresses: s.nodePorts, Ports: localport.New(),
		Reserved: p.Reserved, NeighbourPorts: p.NeighbourPorts, Mode: s.config.Mode, Metrics: counts.Registry, Pages: p.pages(s),
	}
	if backend.IPv6 {
		c.Families = append(c.Families, v1.IPv6Protocol)
	}
	if err := errors.Join(c.HealthzAddress.Set(s.config.HealthzBindAddress), c.MetricsAddress.Set(s.config.MetricsBindAddress)); err != nil {
		return err
	}
	if c.NodeName, err = base.HostName(s.config.HostnameOverride); err != nil {
		return err
	}
	if provider, err = counts.Of(provider); err != nil {
		return err
	}
	if c.Client, err = provider.As("system:kube-proxy", "system:authenticated"); err != nil {
		return err
	}
	events, shutdown := controller.NewRecorder(ctx, c.Client.Kubernetes, v1.EventSource{Component: "kube-proxy", Host: c.NodeName})
	defer shutdown()
	c.Events = events
	return base.Together(ctx, provider.Run, proxy.New(c).Run)
}

// Validate returns all errors in the flags and in the file of --config.
func (p *Proxy) Validate() error {
	_, err := p.load()
	return err
}

// OOMScoreAdj returns the OOM score adjustment of the proxy's process. The proxy
// leaves it to its program.
func (p *Proxy) OOMScoreAdj() (int, error) {
	s, err := p.load()
	if err != nil {
		return 0, err
	}
	return int(*s.config.OOMScoreAdj), nil
}

// Ports returns the ports on which the proxy serves.
func (p *Proxy) Ports() ([]int, error) {
	s, err := p.load()
	if err != nil {
		return nil, err
	}
	var ports []int
	for _, text := range []string{s.config.HealthzBindAddress, s.config.MetricsBindAddress} {
		var address proxy.ListenAddress
		if err := address.Set(text); err != nil {
			return nil, err
		}
		ports = append(ports, address.Port)
	}
	return ports, nil
}

// RemoveRules removes the rules of a proxy that has ended.
func (p *Proxy) RemoveRules() error { return nftables.New(nftables.Config{Table: p.Table}).Remove() }

func (p *Proxy) backend(ctx context.Context, s *proxySettings, r prometheus.Registerer) *nftables.Backend {
	c := nftables.Config{
		Table: p.Table, ClusterCIDRs: s.clusterCIDRs, MasqueradeAll: s.config.NFTables.MasqueradeAll, Mark: 1 << *s.config.NFTables.MasqueradeBit,
		Conntrack: conntrackOf(&s.config.Conntrack, runtime.NumCPU()), Log: klog.FromContext(ctx), Metrics: r,
	}
	switch s.config.DetectLocalMode {
	case configv1alpha1.LocalModeNodeCIDR:
		c.Local.NodeRanges = true
	case configv1alpha1.LocalModeBridgeInterface:
		c.Local.Bridge = s.config.DetectLocal.BridgeInterface
	case configv1alpha1.LocalModeInterfaceNamePrefix:
		c.Local.InterfacePrefix = s.config.DetectLocal.InterfaceNamePrefix
	}
	c.IPv6 = slices.ContainsFunc(s.clusterCIDRs, func(r netip.Prefix) bool { return r.Addr().Is6() })
	if s.config.DetectLocalMode != configv1alpha1.LocalModeClusterCIDR { // without ranges, nothing says what pods have
		c.IPv6 = c.IPv6 || hasIPv6()
	}
	return nftables.New(c)
}

// hasIPv6 reports whether the kernel has IPv6.
func hasIPv6() bool {
	_, err := os.Stat("/proc/net/if_inet6")
	return err == nil
}

// mostConnections bounds how many connections are tracked on a machine with many
// processors, as in upstream.
const mostConnections = 1 << 20

// conntrackOf returns the settings for a machine with so many processors.
func conntrackOf(c *configv1alpha1.Conntrack, processors int) conntrack.Settings {
	most := 0
	if each := int(ptr.Deref(c.MaxPerCore, 0)); each > 0 {
		most = max(min(each*processors, mostConnections), int(ptr.Deref(c.Min, 0)))
	}
	return conntrack.Settings{
		Max: most, TCPEstablished: ptr.Deref(c.TCPEstablishedTimeout, metav1.Duration{}).Duration,
		TCPCloseWait: ptr.Deref(c.TCPCloseWaitTimeout, metav1.Duration{}).Duration, TCPBeLiberal: c.TCPBeLiberal,
		UDP: c.UDPTimeout.Duration, UDPStream: c.UDPStreamTimeout.Duration,
	}
}

// pages returns the pages of the server of /metrics beside its own.
func (p *Proxy) pages(s *proxySettings) map[string]http.Handler {
	pages := map[string]http.Handler{"/configz": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		showConfiguration(w, configv1alpha1.GroupName, s.config)
	})}
	if s.config.EnableProfiling {
		base.AddProfiles(pages)
	}
	base.AddZPages(pages, "kube-proxy", p.source.flagValues(), s.gates, "/healthz", "/metrics", "/proxyMode")
	return pages
}

// write writes the configuration to a file.
func (s *proxySettings) write(ctx context.Context, file string) error {
	data, err := configv1alpha1.Encode(s.config)
	if err != nil {
		return err
	}
	return writeConfiguration(ctx, file, data)
}
