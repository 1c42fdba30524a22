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
)

// DNS serves the cluster's names.
type DNS struct {
	Kubeconfig string
	Addresses  []string
	Port       int
	Domain     string
	ClusterDNS []string
	// ClusterCIDR are the addresses of pods, with commas between; "" answers
	// everybody.
	ClusterCIDR string
	ResolvConf  string
	NodeName    string
}

// NewDNS returns the defaults.
func NewDNS() *DNS {
	return &DNS{Port: 53, Domain: "cluster.local", ResolvConf: "/etc/resolv.conf"}
}

// AddFlags binds the flags.
func (d *DNS) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&d.Kubeconfig, "kubeconfig", d.Kubeconfig, "where the API server is and who this is")
	fs.StringSliceVar(&d.Addresses, "bind-address", d.Addresses, "addresses of this host to listen on (default: that of the default route)")
	fs.IntVar(&d.Port, "port", d.Port, "port to listen on, UDP and TCP")
	fs.StringVar(&d.Domain, "cluster-domain", d.Domain, "DNS domain of the cluster")
	fs.StringSliceVar(&d.ClusterDNS, "cluster-dns", d.ClusterDNS, "cluster IPs of the Service kube-system/kube-dns to keep; none leaves it to others")
	fs.StringVar(&d.ClusterCIDR, "cluster-cidr", d.ClusterCIDR, "addresses of pods; others than pods and the cluster's nodes are refused (default: everybody is answered)")
	fs.StringVar(&d.ResolvConf, "resolv-conf", d.ResolvConf, "names the resolvers for everything outside the cluster")
	fs.StringVar(&d.NodeName, "hostname-override", d.NodeName, "name of the node (default: the host's name)")
}

// Run serves in a process of its own.
func (d *DNS) Run(ctx context.Context) error {
	provider, err := base.Remote(d.Kubeconfig, "dns")
	if err != nil {
		return err
	}
	return base.Together(ctx, provider.Run, func(ctx context.Context) error { return d.RunWith(ctx, provider) })
}

// RunWith serves with a client of the given provider.
func (d *DNS) RunWith(ctx context.Context, provider client.Provider) error {
	own, err := provider.As("system:coredns", "system:authenticated")
	if err != nil {
		return err
	}
	if len(d.Addresses) == 0 {
		ip, err := utilnet.ResolveBindAddress(net.IPv4zero)
		if err != nil {
			return fmt.Errorf("no default route to find this machine's address by: give one with --bind-address (%w)", err)
		}
		d.Addresses = []string{ip.String()}
	}
	if d.NodeName, err = base.HostName(d.NodeName); err != nil {
		return err
	}
	pods, err := d.pods()
	if err != nil {
		return err
	}
	server, err := dns.New(ctx, dns.Config{
		Client: own, Domain: d.Domain, Addresses: d.Addresses, Port: d.Port, ResolvConf: d.ResolvConf,
		Announce: d.ClusterDNS, Pods: pods, NodeName: d.NodeName,
	})
	if err != nil {
		return err
	}
	return server.Run(ctx)
}

// pods are the addresses that --cluster-cidr gives.
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
