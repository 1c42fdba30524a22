package cluster

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	netutils "k8s.io/utils/net"

	"github.com/coracle-io/coracle/internal/component"
	"github.com/coracle-io/coracle/internal/pki"
)

// parseArguments sets up the components' flags: the cluster's own values
// first, then what the user handed through.
func (c *Cluster) parseArguments() error {
	o := &c.options
	c.api = component.NewAPIServerFlags()
	c.api.BindAddress = net.ParseIP(o.BindAddress)
	if c.api.BindAddress == nil {
		return fmt.Errorf("--bind-address=%s: not an IP address", o.BindAddress)
	}
	c.api.AdvertiseAddress = o.NodeIP
	c.api.SecurePort = o.Ports.Secure
	c.api.EtcdServers = o.EtcdServers
	c.api.ServiceClusterIPRange = o.ServiceCIDR
	if o.NodePorts != "" {
		if err := c.api.ServiceNodePortRange.Set(o.NodePorts); err != nil {
			return fmt.Errorf("NodePorts %s: %w", o.NodePorts, err)
		}
	}
	c.api.CertDir = filepath.Join(o.DataDir, "pki")
	if !o.WithoutNode { // this node's kubelet serves with a certificate of the cluster's authority
		c.api.KubeletCAFile = filepath.Join(c.api.CertDir, pki.ClusterAuthority+".crt")
	}

	c.etcd = component.NewEtcd(o.DataDir)
	c.etcd.Socket = o.EtcdSocket
	if err := errors.Join(
		parse("apiserver", c.api.AddFlags, o.APIServerArgs),
		parse("etcd", c.etcd.AddFlags, o.EtcdArgs),
	); err != nil {
		return err
	}
	// Whoever shares the data with other processes takes turns with them; it
	// has one name for all its life, so that after a crash it goes on at once.
	shared := len(c.api.EtcdServers) > 0 || c.etcd.Shared()
	identity := fmt.Sprintf("%s_%s_%x", o.NodeName, o.Name, sha256.Sum256([]byte(o.DataDir)))[:len(o.NodeName)+len(o.Name)+10]

	c.manager = component.NewControllerManager()
	m := c.manager.Options
	m.AllocateNodeCIDRs = true
	m.ClusterCIDR = strings.Split(o.ClusterCIDR, ",")
	m.ServiceClusterIPRange = strings.Split(o.ServiceCIDR, ",")
	c.manager.Leader.LeaderElect, c.manager.Leader.Identity = shared, identity

	c.scheduler = component.NewScheduler()
	c.scheduler.Leader.LeaderElect, c.scheduler.Leader.Identity = shared, identity
	c.manager.Serving.BindAddress, c.manager.Serving.Port = "127.0.0.1", o.Ports.Manager
	c.scheduler.Serving.BindAddress, c.scheduler.Serving.Port = "127.0.0.1", o.Ports.Scheduler

	err := errors.Join(
		parse("controller-manager", c.manager.AddFlags, o.ControllerManagerArgs),
		parse("scheduler", c.scheduler.AddFlags, o.SchedulerArgs),
	)
	c.api.Components = map[string]string{}
	for name, s := range map[string]component.Serving{"controller-manager": c.manager.Serving, "scheduler": c.scheduler.Serving} {
		if s.Port != 0 {
			c.api.Components[name] = net.JoinHostPort(s.BindAddress, strconv.Itoa(s.Port))
		}
	}
	return errors.Join(
		err,
		c.api.Validate(),
		c.etcd.Validate(),
	)
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
		(&Cluster{options: o}).parseArguments(),
		parse("kubelet", kubelet.AddFlags, o.KubeletArgs),
		parse("proxy", proxy.AddFlags, o.ProxyArgs),
	); err != nil {
		return err
	}
	return errors.Join(kubelet.Validate(), proxy.Validate())
}

func parse(name string, addFlags func(*pflag.FlagSet), arguments []string) error {
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	addFlags(fs)
	return component.Set(name, fs, arguments)
}

// clusterDNS is the tenth address of each Service range.
func clusterDNS(serviceCIDR string) ([]string, error) {
	var addresses []string
	for _, s := range strings.Split(serviceCIDR, ",") {
		_, r, err := net.ParseCIDR(s)
		if err != nil {
			return nil, err
		}
		ip, err := netutils.GetIndexedIP(r, 10)
		if err != nil {
			return nil, fmt.Errorf("the range %s is too small for the cluster DNS: %w", s, err)
		}
		addresses = append(addresses, ip.String())
	}
	return addresses, nil
}
