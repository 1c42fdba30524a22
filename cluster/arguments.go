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
func (p *controlPlane) parseArguments() error {
	o := p.settings
	p.api = apiserver.NewFlags()
	p.api.BindAddress = o.bind
	p.api.AdvertiseAddress = o.AdvertiseAddress
	p.api.AdvertiseLoopback = o.Node == nil
	p.api.SecurePort, p.api.FreePort = o.Ports.Secure, o.Ports.Secure == 0
	p.api.ServiceClusterIPRange = o.ServiceCIDR
	if o.NodePorts != "" {
		if err := p.api.ServiceNodePortRange.Set(o.NodePorts); err != nil {
			return wrong("NodePorts", o.NodePorts, "%w", err)
		}
	}
	p.api.CertDir = o.keysDir()
	if o.Node != nil { // this node's kubelet serves with a certificate of the cluster's authority
		p.api.KubeletCAFile = filepath.Join(p.api.CertDir, pki.ClusterAuthority+".crt")
	}
	if o.InProcess {
		p.api.EndpointReconciler = "none"
	}
	if o.Etcd != nil {
		p.etcd = component.NewEtcd(o.DataDir)
		p.etcd.Socket = o.Etcd.Socket
		p.api.EtcdServers = o.Etcd.Servers
	}
	if err := errors.Join(o.set("APIServerArgs", p.api.AddFlags), p.setEtcd()); err != nil {
		return err
	}
	// Whoever shares the data with other processes takes turns with them; it
	// has one name for all its life, so that after a crash it goes on at once.
	shared := p.shared()
	identity := fmt.Sprintf("%s_%s_%x", o.NodeName, o.Name, sha256.Sum256([]byte(o.DataDir)))[:len(o.NodeName)+len(o.Name)+10]

	p.manager = component.NewControllerManager()
	ipam := &p.manager.Options.NodeIPAM
	ipam.AllocateNodeCIDRs = true
	ipam.ClusterCIDR = strings.Split(o.ClusterCIDR, ",")
	ipam.ServiceClusterIPRange = strings.Split(o.ServiceCIDR, ",")
	p.manager.Leader.LeaderElect, p.manager.Leader.Identity = shared, identity

	p.scheduler = component.NewScheduler()
	p.scheduler.Leader.LeaderElect, p.scheduler.Leader.Identity = shared, identity
	p.manager.Serving.BindAddress, p.manager.Serving.Port = "127.0.0.1", o.Ports.Manager
	p.scheduler.Serving.BindAddress, p.scheduler.Serving.Port = "127.0.0.1", o.Ports.Scheduler

	err := errors.Join(
		o.set("ControllerManagerArgs", p.manager.AddFlags),
		o.set("SchedulerArgs", p.scheduler.AddFlags),
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
		p.manager.Validate(),
		p.scheduler.Validate(),
	)
}

// setEtcd sets up the embedded etcd, if it is to keep the objects.
func (p *controlPlane) setEtcd() error {
	if p.etcd == nil {
		return nil
	}
	if err := p.set("EtcdArgs", p.etcd.AddFlags); err != nil {
		return err
	}
	if err := p.etcd.Validate(); err != nil {
		return inField("EtcdArgs", err)
	}
	if len(p.api.EtcdServers) > 0 {
		p.etcd = nil
	}
	return nil
}

// components are the names by which the components of a cluster log.
func components() []string {
	return []string{"apiserver", "containerd", "controller-manager", "dns", "etcd", "events", "kubelet", logging.Libraries, "pki", "podnet", "proxy", "scheduler"}
}

// Check checks options as New does, and also the arguments of components that
// would not run and whether BundleDir holds a container runtime. It starts and
// writes nothing.
func Check(o Options) error {
	settings, err := complete(o)
	if err != nil {
		return err
	}
	kubelet, proxy := component.NewKubelet(), component.NewProxy()
	if err := errors.Join(
		(&controlPlane{settings: settings}).parseArguments(),
		settings.set("KubeletArgs", kubelet.AddFlags),
		settings.set("ProxyArgs", proxy.AddFlags),
	); err != nil {
		return err
	}
	return errors.Join(kubelet.Validate(), proxy.Validate(), settings.checkBundle())
}

// CheckAddress returns an error if the machine has no address that the API
// server can advertise. It may be temporary, as early at boot.
func CheckAddress(o Options) error {
	settings, err := complete(o)
	if err != nil {
		return err
	}
	p := &controlPlane{settings: settings}
	if err := p.parseArguments(); err != nil {
		return err
	}
	_, err = p.api.Advertised()
	return err
}

// checkBundle reports that the container runtime is not where it should be.
func (o *settings) checkBundle() error {
	if o.Node == nil || o.Node.ContainerRuntimeEndpoint != "" {
		return nil
	}
	if _, err := os.Stat(filepath.Join(o.Node.BundleDir, "bin", "containerd")); err != nil {
		return wrong("Node.BundleDir", o.Node.BundleDir, "no container runtime is there (make bundle makes one): %w", err)
	}
	return nil
}

// set applies the arguments of a field to a component's flags.
func (o *settings) set(field string, addFlags func(*pflag.FlagSet)) error {
	of := map[string]struct {
		component string
		arguments []string
	}{
		"APIServerArgs":         {"apiserver", o.APIServerArgs},
		"ControllerManagerArgs": {"controller-manager", o.ControllerManagerArgs},
		"SchedulerArgs":         {"scheduler", o.SchedulerArgs},
		"KubeletArgs":           {"kubelet", o.KubeletArgs},
		"ProxyArgs":             {"proxy", o.ProxyArgs},
		"EtcdArgs":              {"etcd", o.EtcdArgs},
	}[field]
	fs := pflag.NewFlagSet(of.component, pflag.ContinueOnError)
	addFlags(fs)
	return inField(field, base.Set(of.component, fs, of.arguments))
}

// inField turns errors in arguments into errors in the field that has them.
func inField(field string, err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var errs []error
		for _, one := range joined.Unwrap() {
			errs = append(errs, inField(field, one))
		}
		return errors.Join(errs...)
	}
	if argument := (*base.ArgumentError)(nil); errors.As(err, &argument) {
		return &FieldError{Field: field, Value: argument.Argument, Err: argument.Err}
	}
	return err
}

// clusterDNS is the tenth address of each Service range.
func clusterDNS(serviceCIDR string) ([]string, error) {
	var addresses []string
	for _, s := range strings.Split(serviceCIDR, ",") {
		_, r, err := net.ParseCIDR(s)
		if err != nil {
			return nil, wrong("ServiceCIDR", serviceCIDR, wantRange)
		}
		ip, err := netutils.GetIndexedIP(r, 10)
		if err != nil {
			return nil, wrong("ServiceCIDR", serviceCIDR, "the range has no tenth address, which is that of the cluster DNS: choose one of 16 addresses or more, as 10.96.0.0/16")
		}
		addresses = append(addresses, ip.String())
	}
	return addresses, nil
}
