package component

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/netip"
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
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/flagvalue"
	"github.com/coracle-io/coracle/internal/nft"
	"github.com/coracle-io/coracle/internal/proxy"
	"github.com/coracle-io/coracle/internal/proxy/configv1alpha1"
	"github.com/coracle-io/coracle/internal/proxy/conntrack"
	"github.com/coracle-io/coracle/internal/proxy/iptables"
	"github.com/coracle-io/coracle/internal/proxy/ipvs"
	"github.com/coracle-io/coracle/internal/proxy/localport"
	"github.com/coracle-io/coracle/internal/proxy/nftables"
	"github.com/coracle-io/coracle/internal/proxy/userspace"
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
	// Table is the nftables table, and in the modes iptables and ipvs what marks what is
	// the proxy's; each cluster on a machine has its own.
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
	return &Proxy{Table: "kube-proxy", HealthzPort: healthzPort, MetricsPort: metricsPort, ConntrackMaxPerCore: 32 << 10, source: proxySource{logging: base.NewLogging(), ignored: ignoredProxyFlags()}}
}

// AddFlags binds the flags to fs.
func (p *Proxy) AddFlags(fs *pflag.FlagSet) {
	p.source.addFlags(fs, p.defaults(), cmp.Or(p.HealthzPort, healthzPort), cmp.Or(p.MetricsPort, metricsPort))
	fs.StringVar(&p.Table, "nftables-table", p.Table, "name of the nftables table; in the modes iptables and ipvs, mark of what is the proxy's")
	fs.BoolVar(&p.Cleanup, "cleanup", p.Cleanup, "remove what a proxy left behind in any mode, also kube-proxy in the modes iptables and ipvs, and exit")
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
		return errors.Join(p.nftables().Remove(), p.iptables().Remove(), p.ipvs(p.excluded()...).Remove())
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
	base.ApplyLogging(ctx, &s.config.Logging)
	if err := s.checkMachine(); err != nil {
		return err
	}
	for _, warning := range s.warnings {
		klog.FromContext(ctx).Info("Warning: " + warning)
	}
	counts := base.NewCounts(ctx)
	counts.MustRegister(p.Collectors...)
	c := proxy.Config{
		Backend: p.backend(ctx, s, counts.Registry), Families: []v1.IPFamily{v1.IPv4Protocol}, ClusterCIDRs: s.clusterCIDRs, NodePortAddresses: s.nodePorts, Ports: localport.New(),
		Reserved: p.Reserved, NeighbourPorts: p.NeighbourPorts, Mode: s.config.Mode, Metrics: counts.Registry, Pages: p.pages(s),
		WithoutExternalIPs: !s.gates.Enabled(feature.AllowServiceExternalIPs),
	}
	if s.hasIPv6() {
		c.Families = append(c.Families, v1.IPv6Protocol)
	}
	s.setPace(&c)
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
	s.tellDeprecation(events, c.NodeName)
	if s.config.Mode == configv1alpha1.ModeUserspace { // nobody is there any more where its rules lead
		defer func() {
			if err := c.Backend.Remove(); err != nil {
				klog.FromContext(ctx).Error(err, "The rules of the mode userspace cannot be removed")
			}
		}()
	}
	return base.Together(ctx, provider.Run, proxy.New(c).Run)
}

// setPace sets what of a proxy depends on how fast its mode is.
func (s *proxySettings) setPace(c *proxy.Config) {
	switch s.config.Mode {
	case configv1alpha1.ModeIPTables:
		c.MinSyncPeriod, c.SyncPeriod = s.config.IPTables.MinSyncPeriod.Duration, s.config.IPTables.SyncPeriod.Duration
		c.MostOfNamespace = iptables.MostOfNamespace
	case configv1alpha1.ModeIPVS:
		c.MinSyncPeriod, c.SyncPeriod = s.config.IPVS.MinSyncPeriod.Duration, s.config.IPVS.SyncPeriod.Duration
		c.MostOfNamespace = ipvs.MostOfNamespace
	case configv1alpha1.ModeUserspace:
		c.MostOfNamespace = userspace.MostOfNamespace
	}
}

// Validate returns all errors in the flags and in the file of --config, and one if the
// machine lacks what the mode needs.
func (p *Proxy) Validate() error {
	s, err := p.load()
	if err != nil {
		return err
	}
	return s.checkMachine()
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

// Mode returns the proxy mode.
func (p *Proxy) Mode() (string, error) {
	s, err := p.load()
	if err != nil {
		return "", err
	}
	return s.config.Mode, nil
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

// RemoveRules removes what a proxy with this table has left, in any mode. What is
// kube-proxy's stays.
func (p *Proxy) RemoveRules() error {
	return errors.Join(p.nftables().Remove(), p.iptables().RemoveOwn(), p.ipvs(p.excluded()...).RemoveOwn())
}

// excluded returns the ranges whose virtual servers are those of others; none if the flags
// or the file are wrong.
func (p *Proxy) excluded() []netip.Prefix {
	s, err := p.load()
	if err != nil {
		return nil
	}
	return s.excludeCIDRs
}

// nftables, iptables and ipvs return backends that can remove what the proxy has left.
func (p *Proxy) nftables() *nftables.Backend { return nftables.New(nftables.Config{Table: p.Table}) }
func (p *Proxy) iptables() *iptables.Backend { return iptables.New(iptables.Config{Owner: p.Table}) }
func (p *Proxy) ipvs(exclude ...netip.Prefix) *ipvs.Backend {
	return ipvs.New(ipvs.Config{NFTables: nftables.Config{Table: p.Table}, ExcludeCIDRs: exclude})
}

// backend returns the backend of the mode. It removes what another one has left: each has
// the table of nftables, except for iptables.
func (p *Proxy) backend(ctx context.Context, s *proxySettings, r prometheus.Registerer) proxy.Backend {
	log, settings := klog.FromContext(ctx), conntrackOf(&s.config.Conntrack, runtime.NumCPU())
	after := func(b proxy.Backend, former ...func() error) proxy.Backend {
		return &successor{log: log, Backend: b, remove: func() error {
			var errs []error
			for _, remove := range former {
				errs = append(errs, remove())
			}
			return errors.Join(errs...)
		}}
	}
	virtual := p.ipvs(s.excludeCIDRs...).RemoveOwn
	t := &s.config.IPTables
	if s.config.Mode == configv1alpha1.ModeIPTables {
		return after(iptables.New(iptables.Config{
			Owner: p.Table, ClusterCIDRs: s.clusterCIDRs, Local: s.local(), MasqueradeAll: t.MasqueradeAll, Mark: 1 << *t.MasqueradeBit,
			SyncPeriod: t.SyncPeriod.Duration, Conntrack: settings, Log: log, Metrics: r, IPv6: s.hasIPv6(),
		}), p.nftables().Remove, virtual)
	}
	rules := nftables.Config{
		Table: p.Table, ClusterCIDRs: s.clusterCIDRs, Local: s.local(), MasqueradeAll: s.config.NFTables.MasqueradeAll, Mark: 1 << *s.config.NFTables.MasqueradeBit,
		Conntrack: settings, Log: log, Metrics: r, IPv6: s.hasIPv6(),
	}
	switch v := &s.config.IPVS; s.config.Mode {
	case configv1alpha1.ModeIPVS:
		rules.MasqueradeAll, rules.Mark = t.MasqueradeAll, 1<<*t.MasqueradeBit
		return after(ipvs.New(ipvs.Config{
			NFTables: rules, Scheduler: v.Scheduler, ExcludeCIDRs: s.excludeCIDRs, StrictARP: v.StrictARP, SyncPeriod: v.SyncPeriod.Duration,
			Timeouts: ipvs.Timeouts{TCP: v.TCPTimeout.Duration, TCPFin: v.TCPFinTimeout.Duration, UDP: v.UDPTimeout.Duration},
		}), p.iptables().RemoveOwn)
	case configv1alpha1.ModeUserspace:
		return after(userspace.New(ctx, rules), p.iptables().RemoveOwn, virtual)
	}
	return after(nftables.New(rules), p.iptables().RemoveOwn, virtual)
}

// successor is a backend that removes the rules of other modes as soon as its own are
// there, so that Services are reachable all the time.
type successor struct {
	proxy.Backend
	remove func() error // nil once it was called
	log    klog.Logger
}

// Apply implements proxy.Backend. That the former rules cannot be removed does not keep
// the new ones from being applied.
func (s *successor) Apply(rules proxy.Rules) error {
	if err := s.Backend.Apply(rules); err != nil || s.remove == nil {
		return err
	}
	if err := s.remove(); err != nil {
		s.log.Error(err, "The rules of another proxy mode cannot be removed; coracle proxy --cleanup removes them while no proxy runs")
	}
	s.remove = nil
	return nil
}

// local returns by what the connections of pods are recognized.
func (s *proxySettings) local() (l proxy.Local) {
	switch s.config.DetectLocalMode {
	case configv1alpha1.LocalModeNodeCIDR:
		l.NodeRanges = true
	case configv1alpha1.LocalModeBridgeInterface:
		l.Bridge = s.config.DetectLocal.BridgeInterface
	case configv1alpha1.LocalModeInterfaceNamePrefix:
		l.InterfacePrefix = s.config.DetectLocal.InterfaceNamePrefix
	}
	return l
}

// hasIPv6 reports whether there are rules of IPv6.
func (s *proxySettings) hasIPv6() bool {
	if slices.ContainsFunc(s.clusterCIDRs, func(r netip.Prefix) bool { return r.Addr().Is6() }) {
		return true
	}
	// Without ranges, nothing says what pods have.
	return s.config.DetectLocalMode != configv1alpha1.LocalModeClusterCIDR && nft.KernelHasIPv6()
}

// checkMachine returns an error if a program or a part of the kernel that the mode needs
// is missing.
func (s *proxySettings) checkMachine() error {
	switch s.config.Mode {
	case configv1alpha1.ModeIPTables:
		return iptables.Installed(s.hasIPv6())
	case configv1alpha1.ModeIPVS:
		return ipvs.Available()
	}
	return nil
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
	base.AddZPages(pages, "kube-proxy", base.ValuesOf(p.source.fs), s.gates, "/healthz", "/metrics", "/metrics/slis", "/proxyMode")
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
