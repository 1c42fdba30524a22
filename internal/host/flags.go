package host

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/clusterdefaults"
	"github.com/coracle-io/coracle/internal/component"
	"github.com/coracle-io/coracle/internal/registries"
)

// DefaultName is the name of a cluster for which no name is given.
const DefaultName = clusterdefaults.Name

// registriesFlag is the flag whose file is kept in the settings.
const registriesFlag = "registries"

// NewSettings returns the settings of a new cluster before any flag is set and
// before Complete.
func NewSettings() Settings {
	s := Settings{Nodes: 1, Options: cluster.Options{Name: DefaultName, BindAddress: "0.0.0.0", LogLevels: "1"}}
	s.copyPointers()
	return s
}

// flag is a flag of up that sets a setting. Exactly one of text, num, on, off, list,
// pairs and args is set.
type flag struct {
	name  string
	key   string // path of its field in a configuration file
	text  *string
	num   *int
	on    *bool
	off   *bool // is true if the flag is false
	list  *[]string
	pairs *map[string]string
	args  *[]string // of the component in the flag's name

	quantities bool // the values of pairs are quantities

	field   string              // the field of cluster.Options that an error names instead; "" for none
	path    bool                // text is a path, which Absolute makes absolute
	selects bool                // it selects the cluster, and is not stored as a flag that was set
	shown   func(string) string // what a Change shows of text; nil for all
	fixed   fixed               // why it cannot change; nil if it can
	usage   string
}

// flags returns the flags of up that are kept with the cluster. The command
// line, configuration files, the comparison with stored settings and the errors
// about a setting come from this table.
func (s *Settings) flags() []flag {
	s.copyPointers()
	return []flag{
		{name: "name", key: "name", text: &s.Options.Name, field: "Name", selects: true, usage: "name of the cluster and of its kubeconfig context"},
		{name: "data-dir", key: "dataDir", text: &s.Options.DataDir, field: "DataDir", selects: true, path: true, usage: "directory of the cluster's data, new or empty (default " + Root() + "/NAME)"},
		{name: "kubeconfig", key: "kubeconfig", text: &s.Kubeconfig, path: true, usage: "file to write the context to (default: the first file of $KUBECONFIG, or ~/.kube/config)"},
		{name: "bundle", key: "bundle", text: &s.Options.Node.BundleDir, field: "Node.BundleDir", path: true, usage: "directory of the container runtime (default: the directory bundle next to this binary)"},
		{name: "bind-address", key: "bindAddress", text: &s.Options.BindAddress, field: "BindAddress", usage: "address the API server listens on"},
		{name: "secure-port", key: "securePort", num: &s.Options.Ports.Secure, field: "Ports.Secure", usage: "port of the API server (default 6443; further clusters take the next free one)"},
		{name: nodesFlag, key: nodesFlag, num: &s.Nodes, fixed: noFewer("no kubelet would manage its running containers (coracle node remove removes a node)"), usage: "how many nodes on this machine, 0 for a control plane alone"},
		{name: "simulated-nodes", key: "simulatedNodes.count", num: &s.Options.Simulated.Count, field: "Simulated", usage: "number of further nodes without machines, whose containers are timers"},
		{name: "simulated-node-resources", key: "simulatedNodes.resources", pairs: &s.Options.Simulated.Resources, quantities: true, usage: "capacity of each simulated node (default cpu=32,memory=256Gi,ephemeral-storage=1Ti,pods=110)"},
		{name: "simulated-node-labels", key: "simulatedNodes.labels", pairs: &s.Options.Simulated.Labels, usage: "labels of the simulated nodes, such as pool=blue"},
		{name: "simulated-node-zones", key: "simulatedNodes.zones", list: &s.Options.Simulated.Zones, usage: "zones of the simulated nodes, in turn"},
		{name: "node-name", key: "nodeName", text: &s.Options.NodeName, field: "NodeName", fixed: withNode(nodeHasName), usage: "name of the node (default: the host name)"},
		{name: "service-cidr", key: "serviceCIDR", text: &s.Options.ServiceCIDR, field: "ServiceCIDR", fixed: always(servicesHaveIt), usage: "address range of Services (default " + clusterdefaults.ServiceCIDR + "; further clusters take the next one)"},
		{name: "cluster-cidr", key: "clusterCIDR", text: &s.Options.ClusterCIDR, field: "ClusterCIDR", fixed: always(nodesHaveIt), usage: "address range of pods (default " + clusterdefaults.ClusterCIDR + "; further clusters take the one before)"},
		{name: "node-cidr", key: "nodeCIDR", text: &s.Options.Node.CIDR, field: "Node.CIDR", fixed: withFurtherNodes("the nodes have their addresses from it"), usage: "address range of several nodes, or one of each family (default " + clusterdefaults.NodeCIDR + ", " + clusterdefaults.NodeCIDRIPv6 + " or both, as the pods have; further clusters take the next one)"},
		{name: "etcd-servers", key: "etcdServers", list: &s.Options.Etcd.Servers, fixed: onlyIfSet(objectsAreIn), usage: "URLs of an external etcd (default: an embedded etcd)"},
		{name: "container-runtime-endpoint", key: "containerRuntimeEndpoint", text: &s.Options.Node.ContainerRuntimeEndpoint, field: "Node.ContainerRuntimeEndpoint", fixed: withNode(runtimeHasThem), usage: "CRI endpoint of a container runtime (default: the bundled containerd)"},
		{name: "cni-conf-dir", key: "cniConfDir", text: &s.Options.Node.CNIConfDir, field: "Node.CNIConfDir", path: true, fixed: withNode("the pods are connected by the configuration that is there"), usage: "directory of that runtime's CNI configuration, to write the pod network's to (default: the runtime has a pod network); with --network=none, where the plugin's is (default /etc/cni/net.d)"},
		{name: "network", key: "network", text: &s.Options.Node.Network, field: "Node.Network", fixed: withNode("the pods are connected by the network that is there"), usage: "none for another CNI plugin in place of the cluster's pod network and network policies"},
		{name: "encrypt", key: "encrypt", on: &s.Options.Encrypt, field: "Encrypt", fixed: always("all machines of the cluster must have begun with it"), usage: "encrypt what pods of different machines send each other, with WireGuard (UDP port 51820; further clusters take the next one)"},
		{name: registriesFlag, key: "registries", text: &s.Options.Node.Registries, field: "Node.Registries", shown: registries.Summary, usage: "file with mirrors, certificates and logins of image registries, in the form of k3s's registries.yaml (its content is kept)"},
		{name: "controllers", key: "controllers", list: &s.Options.ControlPlane.Controllers, field: "ControlPlane.Controllers", usage: "controllers to run: * is all that are on by default, NAME turns one on, -NAME turns one off, and -* runs none (default *)"},
		{name: "scheduler", key: "scheduler", off: &s.Options.ControlPlane.NoScheduler, field: "ControlPlane.NoScheduler", usage: "run the scheduler; without it pods stay pending until something else binds them"},
		{name: "ingress", key: "ingress", off: &s.Options.Node.Ingress.Off, usage: "serve Ingresses of the class coracle, on the ports of HTTP and HTTPS while there are any"},
		{name: "ingress-http-port", key: "ingressHTTPPort", num: &s.Options.Node.Ingress.HTTPPort, field: "Node.Ingress.HTTPPort", usage: "port of HTTP for Ingresses, on all addresses (default " + strconv.Itoa(clusterdefaults.IngressHTTPPort) + ")"},
		{name: "ingress-https-port", key: "ingressHTTPSPort", num: &s.Options.Node.Ingress.HTTPSPort, field: "Node.Ingress.HTTPSPort", usage: "port of HTTPS for Ingresses, on all addresses (default " + strconv.Itoa(clusterdefaults.IngressHTTPSPort) + ")"},
		{name: "v", key: "logLevels", text: &s.Options.LogLevels, field: "LogLevels", usage: "log level 0 to 10, and of single components: 2,kubelet=5"},
		{name: "apiserver-arg", key: "apiserverArgs", args: &s.Options.APIServerArgs, field: "APIServerArgs", usage: "flag of the API server, such as anonymous-auth=false"},
		{name: "controller-manager-arg", key: "controllerManagerArgs", args: &s.Options.ControllerManagerArgs, field: "ControllerManagerArgs", usage: "flag of the controller manager"},
		{name: "scheduler-arg", key: "schedulerArgs", args: &s.Options.SchedulerArgs, field: "SchedulerArgs", usage: "flag of the scheduler"},
		{name: "kubelet-arg", key: "kubeletArgs", args: &s.Options.KubeletArgs, field: "KubeletArgs", usage: "flag of the kubelet"},
		{name: "proxy-arg", key: "proxyArgs", args: &s.Options.ProxyArgs, field: "ProxyArgs", usage: "flag of the proxy"},
		{name: "etcd-arg", key: "etcdArgs", args: &s.Options.EtcdArgs, field: "EtcdArgs", usage: "flag of the embedded etcd, such as quota-backend-bytes=1073741824"},
	}
}

// BindFlags adds the flags of up, which set s. Their defaults are the values of
// s. The flags must be parsed before s is used otherwise.
func (s *Settings) BindFlags(fs *pflag.FlagSet) {
	for _, f := range s.flags() {
		switch {
		case f.text != nil:
			short := ""
			if len(f.name) == 1 { // -v, as components and kubectl have it
				short = f.name
			}
			fs.StringVarP(f.text, f.name, short, *f.text, f.usage)
		case f.num != nil:
			fs.IntVar(f.num, f.name, *f.num, f.usage)
		case f.on != nil:
			fs.BoolVar(f.on, f.name, *f.on, f.usage)
		case f.off != nil:
			fs.VarPF(inverse{f.off}, f.name, "", f.usage).NoOptDefVal = "true"
		case f.list != nil:
			fs.StringSliceVar(f.list, f.name, *f.list, f.usage)
		case f.pairs != nil:
			fs.StringToStringVar(f.pairs, f.name, *f.pairs, f.usage)
		default:
			fs.StringArrayVar(f.args, f.name, *f.args, f.usage)
		}
	}
}

// inverse is the value of a flag that is true if a setting is false.
type inverse struct{ off *bool }

// String implements pflag.Value. pflag also calls it for the zero value.
func (v inverse) String() string { return strconv.FormatBool(v.off == nil || !*v.off) }

// Set implements pflag.Value.
func (v inverse) Set(text string) error {
	on, err := strconv.ParseBool(text)
	if err != nil {
		return errors.New("want true or false")
	}
	*v.off = !on
	return nil
}

// Type implements pflag.Value.
func (inverse) Type() string { return "bool" }

// Absolute makes the paths in s and in its components' arguments absolute: the
// cluster runs in another directory. It returns an error for arguments that no
// component accepts.
func (s *Settings) Absolute() error {
	var errs []error
	for _, f := range s.flags() {
		switch {
		case f.path && *f.text != "":
			absolute, err := filepath.Abs(*f.text)
			if err != nil {
				errs = append(errs, fmt.Errorf("--%s=%s: %w", f.name, *f.text, err))
				continue
			}
			*f.text = absolute
		case f.args != nil:
			given, err := component.Given(f.component(), *f.args, "")
			*f.args, errs = given, append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// FlagOf returns the name of the flag of up that sets a field of
// cluster.Options, or "".
func FlagOf(field string) string {
	for _, f := range new(Settings).flags() {
		if f.field == field {
			return f.name
		}
	}
	return ""
}

// component returns the component whose arguments a flag sets.
func (f flag) component() string { return strings.TrimSuffix(f.name, "-arg") }

func (f flag) value() string {
	switch {
	case f.text != nil:
		return *f.text
	case f.num != nil:
		return fmt.Sprint(*f.num)
	case f.on != nil:
		return strconv.FormatBool(*f.on)
	case f.off != nil:
		return inverse{f.off}.String()
	case f.pairs != nil:
		var pairs []string
		for _, name := range slices.Sorted(maps.Keys(*f.pairs)) {
			pairs = append(pairs, name+"="+(*f.pairs)[name])
		}
		return strings.Join(pairs, ",")
	}
	return strings.Join(*f.list, ",")
}

func (f flag) set(to flag) {
	switch {
	case f.text != nil:
		*f.text = *to.text
	case f.num != nil:
		*f.num = *to.num
	case f.on != nil:
		*f.on = *to.on
	case f.off != nil:
		*f.off = *to.off
	case f.pairs != nil:
		*f.pairs = maps.Clone(*to.pairs)
	case f.args != nil:
		*f.args = slices.Clone(*to.args)
	default:
		*f.list = slices.Clone(*to.list)
	}
}
