package cluster

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	netutils "k8s.io/utils/net"

	"github.com/coracle-io/coracle/internal/component"
	"github.com/coracle-io/coracle/internal/component/apiserver"
	"github.com/coracle-io/coracle/internal/component/base"
	"github.com/coracle-io/coracle/internal/logging"
	"github.com/coracle-io/coracle/internal/pki"
)

// parseArguments sets up the components' flags: the cluster's own values
// first, then what the user handed through.
func (p *ControlPlane) parseArguments() error {
	o := p.options
	p.api = apiserver.NewFlags()
	p.api.BindAddress = net.ParseIP(o.BindAddress)
	if p.api.BindAddress == nil {
		return fmt.Errorf("--bind-address=%s: not an IP address", o.BindAddress)
	}
	p.api.AdvertiseAddress = o.NodeIP
	p.api.AdvertiseLoopback = o.WithoutNode
	p.api.SecurePort = o.Ports.Secure
	p.api.EtcdServers = o.EtcdServers
	p.api.ServiceClusterIPRange = o.ServiceCIDR
	if o.NodePorts != "" {
		if err := p.api.ServiceNodePortRange.Set(o.NodePorts); err != nil {
			return fmt.Errorf("NodePorts %s: %w", o.NodePorts, err)
		}
	}
	p.api.CertDir = keysDir(o)
	if !o.WithoutNode { // this node's kubelet serves with a certificate of the cluster's authority
		p.api.KubeletCAFile = filepath.Join(p.api.CertDir, pki.ClusterAuthority+".crt")
	}

	p.etcd = component.NewEtcd(o.DataDir)
	p.etcd.Socket = o.EtcdSocket
	if err := errors.Join(
		parse("apiserver", p.api.AddFlags, o.APIServerArgs),
		parse("etcd", p.etcd.AddFlags, o.EtcdArgs),
	); err != nil {
		return err
	}
	// Whoever shares the data with other processes takes turns with them; it
	// has one name for all its life, so that after a crash it goes on at once.
	shared := len(p.api.EtcdServers) > 0 || p.etcd.Shared()
	identity := fmt.Sprintf("%s_%s_%x", o.NodeName, o.Name, sha256.Sum256([]byte(o.DataDir)))[:len(o.NodeName)+len(o.Name)+10]

	p.manager = component.NewControllerManager()
	m := p.manager.Options
	m.AllocateNodeCIDRs = true
	m.ClusterCIDR = strings.Split(o.ClusterCIDR, ",")
	m.ServiceClusterIPRange = strings.Split(o.ServiceCIDR, ",")
	p.manager.Leader.LeaderElect, p.manager.Leader.Identity = shared, identity

	p.scheduler = component.NewScheduler()
	p.scheduler.Leader.LeaderElect, p.scheduler.Leader.Identity = shared, identity
	p.manager.Serving.BindAddress, p.manager.Serving.Port = "127.0.0.1", o.Ports.Manager
	p.scheduler.Serving.BindAddress, p.scheduler.Serving.Port = "127.0.0.1", o.Ports.Scheduler

	err := errors.Join(
		parse("controller-manager", p.manager.AddFlags, o.ControllerManagerArgs),
		parse("scheduler", p.scheduler.AddFlags, o.SchedulerArgs),
	)
	p.api.Components = map[string]string{}
	for name, s := range map[string]base.Serving{"controller-manager": p.manager.Serving, "scheduler": p.scheduler.Serving} {
		if s.Port != 0 {
			p.api.Components[name] = net.JoinHostPort(s.BindAddress, strconv.Itoa(s.Port))
		}
	}
	return errors.Join(
		err,
		p.api.Validate(),
		p.etcd.Validate(),
		p.manager.Validate(),
		p.scheduler.Validate(),
	)
}

// Components are the names by which the components of a cluster log.
func Components() []string {
	return []string{"apiserver", "containerd", "controller-manager", "dns", "etcd", "events", "kubelet", logging.Libraries, "pki", "podnet", "proxy", "scheduler"}
}

// GivenArguments checks arguments for a component that up was given, NAME- among
// them, which takes an argument away. The paths in them become absolute.
func GivenArguments(name string, arguments []string) ([]string, error) {
	addFlags := map[string]func(*pflag.FlagSet){
		"apiserver": apiserver.NewFlags().AddFlags, "controller-manager": component.NewControllerManager().AddFlags,
		"scheduler": component.NewScheduler().AddFlags, "kubelet": component.NewKubelet().AddFlags,
		"proxy": component.NewProxy().AddFlags, "etcd": component.NewEtcd("").AddFlags,
	}[name]
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	addFlags(fs)
	return base.Given(name, fs, arguments)
}

// Check reports what is wrong with the options, their arguments for components
// included, before anything is started. A mistake in a node's arguments is one
// also where there is no node.
func Check(o Options) error {
	if err := o.complete(); err != nil {
		return err
	}
	kubelet, proxy := component.NewKubelet(), component.NewProxy()
	if err := errors.Join(
		(&ControlPlane{options: &o}).parseArguments(),
		parse("kubelet", kubelet.AddFlags, o.KubeletArgs),
		parse("proxy", proxy.AddFlags, o.ProxyArgs),
	); err != nil {
		return err
	}
	return errors.Join(kubelet.Validate(), proxy.Validate(), o.checkBundle())
}

// CheckAddress reports that the machine has no address yet that members of the
// cluster could reach the API server by (apiserver.ErrNoAddress), or that the
// node of this machine has none to go by (apiserver.ErrOtherAddress).
func CheckAddress(o Options) error {
	if err := o.complete(); err != nil {
		return err
	}
	p := &ControlPlane{options: &o}
	if err := p.parseArguments(); err != nil {
		return err
	}
	if o.WithoutNode {
		_, err := p.api.Advertised()
		return err
	}
	return p.api.CheckNode(NodeDir(o.DataDir))
}

// checkBundle reports that the container runtime is not where it should be.
func (o *Options) checkBundle() error {
	if o.WithoutNode || o.ContainerRuntimeEndpoint != "" {
		return nil
	}
	if _, err := os.Stat(filepath.Join(o.BundleDir, "bin", "containerd")); err != nil {
		return fmt.Errorf("no container runtime is in %s (run make bundle, or say with --bundle where it is): %w", o.BundleDir, err)
	}
	return nil
}

func parse(name string, addFlags func(*pflag.FlagSet), arguments []string) error {
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	addFlags(fs)
	return base.Set(name, fs, arguments)
}

// CheckServiceCIDR reports Service ranges that are none, or have no room for the
// cluster's DNS.
func CheckServiceCIDR(serviceCIDR string) error {
	_, err := clusterDNS(serviceCIDR)
	return err
}

// clusterDNS is the tenth address of each Service range.
func clusterDNS(serviceCIDR string) ([]string, error) {
	var addresses []string
	for _, s := range strings.Split(serviceCIDR, ",") {
		_, r, err := net.ParseCIDR(s)
		if err != nil {
			return nil, fmt.Errorf("--service-cidr=%s: want a range such as 10.96.0.0/16, or two of different families", s)
		}
		ip, err := netutils.GetIndexedIP(r, 10)
		if err != nil {
			return nil, fmt.Errorf("--service-cidr=%s: the range has no tenth address, which is that of the cluster DNS: choose one of 16 addresses or more, as 10.96.0.0/16", s)
		}
		addresses = append(addresses, ip.String())
	}
	return addresses, nil
}
