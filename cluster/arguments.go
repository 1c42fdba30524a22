package cluster

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	netutils "k8s.io/utils/net"

	"github.com/coracle-io/coracle/internal/clusterdefaults"
	"github.com/coracle-io/coracle/internal/component"
	"github.com/coracle-io/coracle/internal/component/apiserver"
	"github.com/coracle-io/coracle/internal/component/base"
	"github.com/coracle-io/coracle/internal/controllers/bootstrap"
	"github.com/coracle-io/coracle/internal/controllers/servicelb"
	"github.com/coracle-io/coracle/internal/logging"
	"github.com/coracle-io/coracle/internal/pki"
	"github.com/coracle-io/coracle/internal/podnet"
	"github.com/coracle-io/coracle/internal/simnode"
)

// planeConfiguration holds the options of the components of a control plane:
// those of the cluster, changed by the components' arguments. The node reads
// from it where the API server is and which ports are taken.
type planeConfiguration struct {
	settings  *settings
	api       *apiserver.Options
	etcd      *component.Etcd // nil if the objects are stored elsewhere
	manager   *component.ControllerManager
	scheduler *component.Scheduler
	simulated simnode.Nodes
}

// configurePlane returns the configuration of the control plane, or an error if
// it is invalid. It opens nothing.
func configurePlane(o *settings) (*planeConfiguration, error) {
	p := &planeConfiguration{settings: o}
	var err error
	if p.simulated, err = o.simulatedNodes(); err == nil {
		err = p.parseArguments()
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// parseArguments sets the components' flags: first the values from the options,
// then the arguments.
func (p *planeConfiguration) parseArguments() error {
	o := p.settings
	p.api = apiserver.NewOptions()
	p.api.Serving.BindAddress = o.parsed.bind
	p.api.Serving.AdvertiseAddress = o.AdvertiseAddress
	p.api.Serving.AdvertiseLoopback = o.Node == nil
	p.api.Serving.Port, p.api.Serving.FreePort = o.Ports.Secure, o.Ports.Secure == 0
	p.api.Services.ClusterIPRange = o.ServiceCIDR
	if o.NodePorts != "" {
		if err := p.api.Services.NodePortRange.Set(o.NodePorts); err != nil {
			return wrong("NodePorts", o.NodePorts, "%w", err)
		}
	}
	p.api.Serving.CertDir = o.keysDir()
	if o.Node != nil { // this node's kubelet serves with a certificate of the cluster's authority
		p.api.KubeletClient.CAFile = filepath.Join(p.api.Serving.CertDir, pki.ClusterAuthority+".crt")
	}
	if o.several() {
		p.api.Serving.NodesAddress = o.segment().Gateway().AsSlice()
	}
	if len(p.simulated) > 0 {
		p.api.KubeletClient.Local = p.simulated.Kubelet
	}
	if o.InProcess {
		p.api.Services.EndpointReconciler = "none"
	}
	if o.Etcd != nil {
		p.etcd = component.NewEtcd(o.DataDir)
		p.etcd.Socket = o.Etcd.Socket
		p.api.Storage.Etcd.URLs = o.Etcd.Servers
	}
	if err := errors.Join(o.set("APIServerArgs", p.api.AddFlags), p.setEtcd()); err != nil {
		return err
	}
	p.verifyKubeletsElsewhere()
	if err := p.checkOwn(); err != nil {
		return err
	}
	// Controller managers and schedulers that share the data elect leaders. The
	// identity is permanent, so that after a crash they continue at once.
	shared := p.shared()
	place := sha256.Sum256([]byte(o.DataDir))
	identity := fmt.Sprintf("%s_%s_%x", o.NodeName, o.Name, place[:4])

	p.manager = component.NewControllerManager()
	ipam := &p.manager.Options.NodeIPAM
	ipam.AllocateNodeCIDRs = !o.joined() // then the control plane does, with prefix lengths of its own
	ipam.ClusterCIDR = strings.Split(o.ClusterCIDR, ",")
	ipam.ServiceClusterIPRange = strings.Split(o.ServiceCIDR, ",")
	p.manager.Options.ServiceLB = servicelb.Options{NodeAddresses: p.mayHaveNodes(), Reserved: append(o.Ports.all(), podnet.TunnelPort), Ranges: slices.Concat(prefixes(o.ClusterCIDR), prefixes(o.ServiceCIDR))}
	p.manager.Leader.Configuration.LeaderElect, p.manager.Leader.Identity = new(shared), identity

	if len(o.ControlPlane.Controllers) > 0 {
		p.manager.Enabled = o.ControlPlane.Controllers
	}

	p.scheduler = component.NewScheduler()
	p.scheduler.Configuration.LeaderElection.LeaderElect, p.scheduler.Identity = new(shared), identity
	p.manager.Serving.BindAddress, p.manager.Serving.Port = "127.0.0.1", o.Ports.Manager
	p.scheduler.Serving.BindAddress, p.scheduler.Serving.Port = "127.0.0.1", o.Ports.Scheduler

	err := errors.Join(
		o.set("ControllerManagerArgs", p.manager.AddFlags),
		o.set("SchedulerArgs", p.scheduler.AddFlags),
		p.checkChosen(),
	)
	p.manager.Enabled = withBootstrap(p.manager.Enabled)
	p.api.Components = map[string]string{}
	for name, s := range map[string]base.Serving{"controller-manager": p.manager.Serving, schedulerName: p.scheduler.Serving} {
		if s.Port != 0 && (name != schedulerName || !o.ControlPlane.NoScheduler) {
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

// verifyKubeletsElsewhere has a server without a node verify the kubelets of the other
// servers and of nodes that join: they serve with certificates of the cluster's authority.
func (p *planeConfiguration) verifyKubeletsElsewhere() {
	if p.settings.Node == nil && p.mayHaveNodes() && p.api.KubeletClient.CAFile == "" {
		p.api.KubeletClient.CAFile = filepath.Join(p.api.Serving.CertDir, pki.ClusterAuthority+".crt")
	}
}

// withBootstrap adds the controllers of bootstrap tokens, which are off by default,
// to a list that enables all, as kubeadm does. An entry that turns one of them off
// is before them, and wins.
func withBootstrap(enabled []string) []string {
	if !slices.Contains(enabled, "*") {
		return enabled
	}
	return slices.Concat(enabled, []string{bootstrap.Signer().Name, bootstrap.TokenCleaner().Name})
}

// schedulerName is the scheduler's name in logs, in Status and among
// componentstatuses.
const schedulerName = "scheduler"

// checkOwn refuses a port of the API server that differs from Options.Ports.Secure,
// which its clients use.
func (p *planeConfiguration) checkOwn() error {
	if port := p.api.Serving.Port; port != p.settings.Ports.Secure {
		return &FieldError{Field: "Ports.Secure", Value: strconv.Itoa(port), Err: errors.New("an argument of the API server does not set it: remove the argument, and set the option itself")}
	}
	return nil
}

// checkChosen refuses arguments that contradict which controllers and schedulers
// the options choose.
func (p *planeConfiguration) checkChosen() error {
	chosen := p.settings.ControlPlane
	if len(chosen.Controllers) > 0 && !slices.Equal(chosen.Controllers, p.manager.Enabled) {
		return &FieldError{Field: "ControlPlane.Controllers", Value: strings.Join(chosen.Controllers, ","), Err: errors.New("an argument of the controller manager says controllers, too: remove one of them")}
	}
	if chosen.NoScheduler && len(p.settings.SchedulerArgs) > 0 {
		return &FieldError{Field: "ControlPlane.NoScheduler", Err: errors.New("there are arguments of the scheduler, which is turned off: remove them, or leave it on")}
	}
	return nil
}

// setEtcd sets up the embedded etcd, unless the objects are stored elsewhere.
func (p *planeConfiguration) setEtcd() error {
	if p.etcd == nil {
		return nil
	}
	if err := p.settings.set("EtcdArgs", p.etcd.AddFlags); err != nil {
		return err
	}
	if err := p.etcd.Validate(); err != nil {
		return inField("EtcdArgs", err)
	}
	if len(p.api.Storage.Etcd.URLs) > 0 {
		p.etcd = nil
	}
	return nil
}

// Components returns the names of the components that a cluster can have, as they
// are in its log, in Status and in Options.LogLevels, sorted. In the log, "lib"
// stands for client-go and the other k8s.io libraries.
func Components() []string {
	return []string{"addresses", announcer, "apiserver", "containerd", "controller-manager", "dns", "etcd", "events", "ingress", "kubelet", logging.Libraries, "local-volumes", "manifests", "network-policy", "node-join", "pki", "podnet", "proxy", "routes", "scheduler", "segment", "simulated-nodes"}
}

// Check checks options as New does. It also returns an error for arguments with
// which a component of a node would not run, and if BundleDir holds no container
// runtime: errors that New leaves to the process of the node. It starts nothing
// and writes no files.
func Check(o Options) error {
	settings, err := complete(o)
	if err != nil {
		return err
	}
	_, err = configurePlane(settings)
	kubelet, proxy := component.NewKubelet(), component.NewProxy()
	if err := errors.Join(
		err,
		settings.set("KubeletArgs", kubelet.AddFlags),
		settings.set("ProxyArgs", proxy.AddFlags),
	); err != nil {
		return err
	}
	return errors.Join(kubelet.Validate(), settings.checkKubelets(), proxy.Validate(), settings.checkBundle())
}

// checkKubelets returns an error for arguments with which the kubelet of a node that
// has arguments of its own would not run.
func (o *settings) checkKubelets() error {
	var errs []error
	for _, number := range o.NodeNumbers() {
		if len(o.Node.each(number).arguments()) == 0 {
			continue
		}
		kubelet := component.NewKubelet()
		err := o.setKubelet(number, kubelet.AddFlags)
		if err == nil {
			err = kubelet.Validate()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", o.NameOfNode(number), err))
		}
	}
	return errors.Join(errs...)
}

// setKubelet applies the arguments of the kubelet of a node to its flags.
func (o *settings) setKubelet(number int, addFlags func(*pflag.FlagSet)) error {
	of := *o
	of.KubeletArgs = o.KubeletArgsOf(number)
	return of.set("KubeletArgs", addFlags)
}

// CheckAddress returns an error if the machine has no address that the API
// server can advertise. That may be temporary, as early at boot.
func CheckAddress(o Options) error {
	settings, err := complete(o)
	if err != nil {
		return err
	}
	plane, err := configurePlane(settings)
	if err != nil {
		return err
	}
	_, err = plane.api.Advertised()
	return err
}

// checkBundle returns an error if the container runtime is missing.
func (o *settings) checkBundle() error {
	if o.Node == nil || o.Node.ContainerRuntimeEndpoint != "" {
		return nil
	}
	if _, err := os.Stat(filepath.Join(o.Node.BundleDir, "bin", "containerd")); err != nil {
		return wrong("Node.BundleDir", o.Node.BundleDir, "no container runtime is there (make bundle makes one): %w", err)
	}
	return nil
}

// set applies the arguments in a field of Options to a component's flags.
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

// inField converts errors in arguments into errors in a field.
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

// clusterDNS returns the tenth address of each Service range.
func clusterDNS(serviceCIDR string) ([]string, error) {
	var addresses []string
	for _, s := range strings.Split(serviceCIDR, ",") {
		_, r, err := net.ParseCIDR(s)
		if err != nil {
			return nil, wrong("ServiceCIDR", serviceCIDR, wantRange, clusterdefaults.ServiceCIDR)
		}
		ip, err := netutils.GetIndexedIP(r, 10)
		if err != nil {
			return nil, wrong("ServiceCIDR", serviceCIDR, "the range has no tenth address, which is that of the cluster DNS: choose one of 16 addresses or more, such as %s", clusterdefaults.ServiceCIDR)
		}
		addresses = append(addresses, ip.String())
	}
	return addresses, nil
}
