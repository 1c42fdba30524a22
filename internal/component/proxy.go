package component

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/component/base"
	"github.com/coracle-io/coracle/internal/proxy"
	"github.com/coracle-io/coracle/internal/proxy/nftables"
)

const modeNFTables = "nftables"

// Proxy makes Services reachable on one node.
type Proxy struct {
	Kubeconfig  string
	Mode        string
	NodeName    string
	ClusterCIDR string
	// Table is the nftables table; each cluster on a machine has its own.
	Table       string
	HealthzAddr string
	HealthzPort int
	MetricsAddr string
	MetricsPort int
	Cleanup     bool
	// Reserved are ports of this node that neither pods' host ports nor
	// external addresses of Services take.
	Reserved []int
}

// NewProxy returns upstream's defaults.
func NewProxy() *Proxy {
	return &Proxy{
		Mode: modeNFTables, Table: "kube-proxy",
		HealthzAddr: "0.0.0.0", HealthzPort: 10256, MetricsAddr: "127.0.0.1", MetricsPort: 10249,
	}
}

// AddFlags binds the flags.
func (p *Proxy) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&p.Kubeconfig, "kubeconfig", p.Kubeconfig, "where the API server is and who this is")
	fs.StringVar(&p.Mode, "proxy-mode", p.Mode, "nftables")
	fs.StringVar(&p.NodeName, "hostname-override", p.NodeName, "name of the node (default: the host's name)")
	fs.StringVar(&p.ClusterCIDR, "cluster-cidr", p.ClusterCIDR, "addresses of pods; what comes to a Service from elsewhere is masqueraded")
	fs.StringVar(&p.Table, "nftables-table", p.Table, "name of the nftables table")
	fs.BoolVar(&p.Cleanup, "cleanup", p.Cleanup, "remove the rules of a proxy that has ended, and exit")
	fs.Var(hostPort{&p.HealthzAddr, &p.HealthzPort}, "healthz-bind-address", "address and port of /healthz; empty is none")
	fs.Var(hostPort{&p.MetricsAddr, &p.MetricsPort}, "metrics-bind-address", "address and port of /metrics; empty is none")
}

// Run proxies in a process of its own.
func (p *Proxy) Run(ctx context.Context) error {
	if p.Cleanup {
		return p.RemoveRules()
	}
	provider, err := base.Remote(p.Kubeconfig, "kube-proxy")
	if err != nil {
		return err
	}
	return p.RunWith(ctx, provider)
}

// RunWith proxies with a client of the given provider until ctx ends. The
// rules stay, so that Services are reachable while a proxy restarts.
func (p *Proxy) RunWith(ctx context.Context, provider client.Provider) error {
	backend, err := p.backend()
	if err != nil {
		return err
	}
	if p.NodeName, err = base.HostName(p.NodeName); err != nil {
		return err
	}
	c := base.NewCounts(ctx)
	if provider, err = c.Of(provider); err != nil {
		return err
	}
	own, err := provider.As("system:kube-proxy", "system:authenticated")
	if err != nil {
		return err
	}
	return base.Together(ctx, provider.Run, proxy.New(proxy.Config{
		Client: own, NodeName: p.NodeName, Backend: backend, Mode: p.Mode,
		HealthzAddress: listenAddress(p.HealthzAddr, p.HealthzPort),
		MetricsAddress: listenAddress(p.MetricsAddr, p.MetricsPort), Metrics: c.Registry,
		Reserved: p.Reserved,
	}).Run)
}

// Validate reports what is wrong with the flags.
func (p *Proxy) Validate() error {
	_, err := p.backend()
	return err
}

// RemoveRules takes the rules of a proxy that has ended away.
func (p *Proxy) RemoveRules() error {
	backend, err := p.backend()
	if err != nil {
		return err
	}
	return backend.Remove()
}

func (p *Proxy) backend() (proxy.Backend, error) {
	if p.Mode != modeNFTables {
		return nil, fmt.Errorf("--proxy-mode=%s: the mode there is is %s", p.Mode, modeNFTables)
	}
	c := nftables.Config{Table: p.Table}
	if p.ClusterCIDR != "" {
		for _, s := range strings.Split(p.ClusterCIDR, ",") {
			r, err := netip.ParsePrefix(s)
			if err != nil {
				return nil, fmt.Errorf("--cluster-cidr=%s: want a range such as 10.244.0.0/16", p.ClusterCIDR)
			}
			c.ClusterCIDRs = append(c.ClusterCIDRs, r)
			c.IPv6 = c.IPv6 || r.Addr().Is6()
		}
	}
	return nftables.New(c), nil
}

func listenAddress(host string, port int) string {
	if port == 0 {
		return ""
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

// hostPort is a flag of the form address:port.
type hostPort struct {
	host *string
	port *int
}

// String implements pflag.Value.
func (h hostPort) String() string {
	if h.host == nil {
		return ""
	}
	return listenAddress(*h.host, *h.port)
}

// Type implements pflag.Value.
func (hostPort) Type() string { return "address:port" }

// Set implements pflag.Value.
func (h hostPort) Set(s string) error {
	if s == "" {
		*h.port = 0
		return nil
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return errors.New("want address:port, or nothing for none")
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("port %q is not from 0 to 65535", port)
	}
	*h.host, *h.port = host, n
	return nil
}
