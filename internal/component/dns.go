package component

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/spf13/pflag"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/component/base"
	"github.com/coracle-io/coracle/internal/dns"
	"github.com/coracle-io/coracle/internal/flagvalue"
)

// DNS is the cluster's DNS server.
type DNS struct {
	dns.Config
	Kubeconfig string
	// ClusterCIDR are the ranges of pod addresses, separated by commas. Only
	// pods are answered; "" answers all clients.
	ClusterCIDR string
}

// NewDNS returns the defaults.
func NewDNS() *DNS {
	return &DNS{Config: dns.Config{Port: 53, MetricsPort: 9153, Domain: "cluster.local", ResolvConf: "/etc/resolv.conf"}}
}

// AddFlags binds the flags to fs.
func (d *DNS) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&d.Kubeconfig, "kubeconfig", d.Kubeconfig, "kubeconfig file for the API server")
	fs.StringSliceVar(&d.Addresses, "bind-address", d.Addresses, "addresses of this host to listen on (default: that of the default route)")
	fs.IntVar(&d.Port, "port", d.Port, "port to listen on, UDP and TCP")
	fs.IntVar(&d.MetricsPort, "metrics-port", d.MetricsPort, "port of /metrics, for the clients that are answered; 0 is none")
	fs.StringVar(&d.Domain, "cluster-domain", d.Domain, "DNS domain of the cluster")
	fs.StringSliceVar(&d.Announce, "cluster-dns", d.Announce, "cluster IPs of the Service kube-system/kube-dns, which this server creates and restores (default: it leaves the Service alone)")
	fs.StringVar(&d.ClusterCIDR, "cluster-cidr", d.ClusterCIDR, "addresses of pods; others than pods and the cluster's nodes are refused (default: all clients are answered)")
	fs.StringVar(&d.ResolvConf, "resolv-conf", d.ResolvConf, "resolver configuration file with the servers for names outside the cluster")
	fs.StringVar(&d.NodeName, "hostname-override", d.NodeName, "name of the node (default: the host's name)")
	flagvalue.Is(fs, flagvalue.File, "kubeconfig", "resolv-conf")
	flagvalue.Is(fs, flagvalue.Address, "bind-address", "cluster-dns")
	flagvalue.Is(fs, flagvalue.Ranges, "cluster-cidr")
	flagvalue.Is(fs, flagvalue.Name, "cluster-domain", "hostname-override")
}

// Run serves in a process of its own.
func (d *DNS) Run(ctx context.Context) error {
	provider, err := base.Remote("", d.Kubeconfig, "dns")
	if err != nil {
		return err
	}
	return base.Together(ctx, provider.Run, func(ctx context.Context) error { return d.RunWith(ctx, provider) })
}

// RunWith serves with a client of the given provider.
func (d *DNS) RunWith(ctx context.Context, provider client.Provider) error {
	c := d.Config
	c.Metrics = base.NewCounts(ctx).Registry
	var err error
	if c.Client, err = provider.As("system:coredns", "system:authenticated"); err != nil {
		return err
	}
	if len(c.Addresses) == 0 {
		ip, err := utilnet.ResolveBindAddress(net.IPv4zero)
		if err != nil {
			return fmt.Errorf("no default route to find this machine's address by: give one with --bind-address (%w)", err)
		}
		c.Addresses = []string{ip.String()}
	}
	if c.NodeName, err = base.HostName(c.NodeName); err != nil {
		return err
	}
	if c.Pods, err = d.pods(); err != nil {
		return err
	}
	server, err := dns.New(ctx, c)
	if err != nil {
		return err
	}
	return server.Run(ctx)
}

// pods parses --cluster-cidr.
func (d *DNS) pods() ([]netip.Prefix, error) {
	if d.ClusterCIDR == "" {
		return nil, nil
	}
	var list []netip.Prefix
	for _, text := range strings.Split(d.ClusterCIDR, ",") {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("--cluster-cidr=%s: want a range such as 10.244.0.0/16, or one of each family with a comma between", d.ClusterCIDR)
		}
		list = append(list, p)
	}
	return list, nil
}
