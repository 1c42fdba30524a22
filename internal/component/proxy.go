package component

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/component/base"
	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/flagvalue"
	"github.com/coracle-io/coracle/internal/proxy"
	"github.com/coracle-io/coracle/internal/proxy/localport"
	"github.com/coracle-io/coracle/internal/proxy/nftables"
)

const modeNFTables = "nftables"

// Proxy makes Services reachable on one node.
type Proxy struct {
	proxy.Config
	Kubeconfig  string
	ClusterCIDR string
	// Table is the nftables table; each cluster on a machine has its own.
	Table   string
	Cleanup bool
	// NodePortAddresses are CIDRs or words, as in proxy.ParseNodePortAddresses.
	NodePortAddresses []string
	// Collectors are served with the proxy's own metrics.
	Collectors []prometheus.Collector
}

// NewProxy returns upstream's defaults.
func NewProxy() *Proxy {
	return &Proxy{Table: "kube-proxy", NodePortAddresses: []string{"primary"}, Config: proxy.Config{
		Mode: modeNFTables, HealthzAddress: proxy.ListenAddress{Host: "0.0.0.0", Port: 10256}, MetricsAddress: proxy.ListenAddress{Host: "127.0.0.1", Port: 10249},
	}}
}

// AddFlags binds the flags to fs.
func (p *Proxy) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&p.Kubeconfig, "kubeconfig", p.Kubeconfig, "kubeconfig file for the API server")
	fs.StringVar(&p.Mode, "proxy-mode", p.Mode, "proxy mode: only nftables")
	fs.StringVar(&p.NodeName, "hostname-override", p.NodeName, "name of the node (default: the host's name)")
	fs.StringVar(&p.ClusterCIDR, "cluster-cidr", p.ClusterCIDR, "CIDR of pod IPs; traffic to Services from other addresses is masqueraded")
	fs.StringVar(&p.Table, "nftables-table", p.Table, "name of the nftables table")
	fs.StringSliceVar(&p.NodePortAddresses, "nodeport-addresses", p.NodePortAddresses, "addresses of the node at which node ports answer: CIDRs, primary (the node's primary addresses, by its object) or all; never loopback addresses")
	fs.BoolVar(&p.Cleanup, "cleanup", p.Cleanup, "remove the rules that a proxy left behind, and exit")
	fs.Var(&p.HealthzAddress, "healthz-bind-address", "address and port of /healthz; empty disables it")
	fs.Var(&p.MetricsAddress, "metrics-bind-address", "address and port of /metrics; empty disables it")
	flagvalue.Is(fs, flagvalue.File, "kubeconfig")
	flagvalue.Is(fs, flagvalue.Ranges, "cluster-cidr")
	flagvalue.Is(fs, flagvalue.Name, "hostname-override")
	flagvalue.Is(fs, flagvalue.Table, "nftables-table")
}

// Run proxies in a process of its own.
func (p *Proxy) Run(ctx context.Context) error {
	if p.Cleanup {
		return p.RemoveRules()
	}
	provider, err := base.Remote("", p.Kubeconfig, "kube-proxy")
	if err != nil {
		return err
	}
	return p.RunWith(ctx, provider)
}

// RunWith proxies with a client of the given provider until ctx ends. The
// rules stay, so that Services are reachable while a proxy restarts.
func (p *Proxy) RunWith(ctx context.Context, provider client.Provider) error {
	c, counts := p.Config, base.NewCounts(ctx)
	c.Metrics = counts.Registry
	counts.MustRegister(p.Collectors...)
	var err error
	if c.Backend, err = p.backend(); err != nil {
		return err
	}
	if c.ClusterCIDRs, err = p.clusterCIDRs(); err != nil {
		return err
	}
	if c.NodePortAddresses, err = p.nodePortAddresses(); err != nil {
		return err
	}
	if c.NodeName, err = base.HostName(c.NodeName); err != nil {
		return err
	}
	if provider, err = counts.Of(provider); err != nil {
		return err
	}
	if c.Client, err = provider.As("system:kube-proxy", "system:authenticated"); err != nil {
		return err
	}
	c.Ports = localport.New()
	events, shutdown := controller.NewRecorder(ctx, c.Client.Kubernetes, v1.EventSource{Component: "kube-proxy", Host: c.NodeName})
	defer shutdown()
	c.Events = events
	return base.Together(ctx, provider.Run, proxy.New(c).Run)
}

// Validate returns all errors in the flags.
func (p *Proxy) Validate() error {
	_, err := p.backend()
	_, wrong := p.nodePortAddresses()
	return errors.Join(err, wrong)
}

func (p *Proxy) nodePortAddresses() (proxy.NodePortAddresses, error) {
	parsed, err := proxy.ParseNodePortAddresses(p.NodePortAddresses)
	if err != nil {
		return parsed, fmt.Errorf("--nodeport-addresses: %w", err)
	}
	return parsed, nil
}

// RemoveRules removes the rules of a proxy that has ended.
func (p *Proxy) RemoveRules() error {
	backend, err := p.backend()
	if err != nil {
		return err
	}
	return backend.Remove()
}

func (p *Proxy) backend() (proxy.Backend, error) {
	if p.Mode != modeNFTables {
		return nil, fmt.Errorf("--proxy-mode=%s: only %s is supported", p.Mode, modeNFTables)
	}
	ranges, err := p.clusterCIDRs()
	if err != nil {
		return nil, err
	}
	c := nftables.Config{Table: p.Table, ClusterCIDRs: ranges}
	c.IPv6 = slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Addr().Is6() })
	return nftables.New(c), nil
}

// clusterCIDRs returns the ranges of ClusterCIDR.
func (p *Proxy) clusterCIDRs() ([]netip.Prefix, error) {
	if p.ClusterCIDR == "" {
		return nil, nil
	}
	var ranges []netip.Prefix
	for _, s := range strings.Split(p.ClusterCIDR, ",") {
		r, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, fmt.Errorf("--cluster-cidr=%s: want a range such as 10.244.0.0/16", p.ClusterCIDR)
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}
