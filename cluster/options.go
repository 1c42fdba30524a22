// Package cluster runs a whole Kubernetes cluster inside a Go program: store,
// API server, controllers and scheduler, and optionally a node with kubelet,
// container runtime, proxy and DNS.
//
// The zero value of [Options] is a control plane that keeps its objects in
// memory and listens on a free port of loopback. It runs as any user and leaves
// no files. Any number of clusters run in one process:
//
//	c, err := cluster.New(cluster.Options{})
//	ended := make(chan error, 1)
//	go func() { ended <- c.Run(ctx) }() // wait for its end, too: it removes temporary files
//	select {
//	case <-c.APIReady():
//	case err := <-ended: // it cannot start
//		return err
//	}
//	pods, err := c.Client().CoreV1().Pods("").List(ctx, metav1.ListOptions{})
//
// In tests, clustertest.Start does so. [Options.Simulated] adds nodes on which
// pods run, as far as the API can tell.
//
// # A node in a process of its own
//
// A program can run its containers in one process and the control plane in
// another, so that neither ends with the other. All of its processes have the
// same Options, with [NodeOptions.SeparateProcess]:
//
//	err := cluster.Prepare(o)   // first: the keys, and the node's files
//	c, err := cluster.New(o)    // one process: c.Run runs the control plane
//	n, err := cluster.NewNode(o) // another one, as root: n.Run runs the node
//	err = cluster.EnterNode(o)   // in one more, if there are several nodes: then NewNode
//	err = cluster.Purge(ctx, o) // when both have ended: removes the containers
//
// [Check] and [CheckAddress] find out in advance whether these processes would
// start, and [AdminKubeconfig] lets a third one reach the API server.
//
// # The process
//
// The package does not change process-wide state: no logger, feature gate,
// memory limit or signal handler. Components log to [Options.Log]. Dependencies
// keep some state per process, which the program may set itself:
//
//   - klog's global logger. Messages of client-go that carry no logger go there.
//   - The feature gates of k8s.io/apiserver. The flag feature-gates in
//     Options.APIServerArgs applies to this cluster and leaves them as they are.
//   - AccumulatedCopySizeLimit of gopkg.in/evanphx/json-patch.v4, which bounds
//     JSON patches of webhooks. Set it if webhooks are not trusted.
//   - Importing the package registers net/http/pprof and golang.org/x/net/trace
//     with http.DefaultServeMux, and metrics with k8s.io/component-base.
package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/coracle-io/coracle/internal/clusterdefaults"
	"github.com/coracle-io/coracle/internal/clusternames"
	"github.com/coracle-io/coracle/internal/logging"
	"github.com/coracle-io/coracle/internal/registries"
)

// Ports are the TCP ports that a cluster listens on, and WireGuard, which is one of UDP.
// Kubelet and the ports after it are of the node.
type Ports struct {
	Secure         int `json:"secure,omitzero"`            // API server, HTTPS; 0 is a free port
	Manager        int `json:"controllerManager,omitzero"` // health and metrics of the controller manager, HTTPS on loopback; 0 is none
	Scheduler      int `json:"scheduler,omitzero"`         // health and metrics of the scheduler, HTTPS on loopback; 0 is none
	Kubelet        int `json:"kubelet,omitzero"`           // HTTPS; 0 is 10250
	KubeletHealthz int `json:"kubeletHealthz,omitzero"`    // on loopback; 0 is none
	ProxyHealthz   int `json:"proxyHealthz,omitzero"`      // 0 is none
	ProxyMetrics   int `json:"proxyMetrics,omitzero"`      // on loopback; 0 is none
	DNS            int `json:"dns,omitzero"`               // TCP and UDP on the node's address; 0 is 10053
	DNSMetrics     int `json:"dnsMetrics,omitzero"`        // metrics of the DNS server, on the node's address; 0 is none
	WireGuard      int `json:"wireGuard,omitzero"`         // packets of other machines with Encrypt; 0 is 51820
}

// Options configures a cluster. The zero value is described in the package
// comment. Its JSON form leaves out Log and Progress.
type Options struct {
	// Name distinguishes clusters with nodes on one machine. It is a DNS label;
	// the default is "coracle".
	Name string `json:"name,omitzero"`
	// DataDir holds keys, the data of an embedded etcd and the files of the node.
	// The default is a temporary directory that Run makes and removes. A cluster
	// with a node must have a DataDir.
	DataDir string `json:"dataDir,omitzero"`

	// Log receives the log, one line per Write. The default discards it.
	Log io.Writer `json:"-"`
	// LogLevels sets how much is logged, from 0 to 10: "2", or per component
	// "2,kubelet=5". The default is 0.
	LogLevels string `json:"logLevels,omitzero"`
	// Progress is called with a line of text at each stage of the start, from
	// several goroutines. It must not block. The default does nothing.
	Progress func(stage string) `json:"-"`

	// InProcess makes the cluster open no sockets. Only Cluster.Client and
	// Cluster.Config reach its API server, and it has no node. It is for
	// testing/synctest, whose clock stands still while a goroutine waits for
	// the network.
	InProcess bool `json:"inProcess,omitzero"`
	// BindAddress is the IP address that the API server listens on. The default
	// is 127.0.0.1, and with a node 0.0.0.0, so that its pods reach the server.
	BindAddress string `json:"bindAddress,omitzero"`
	// AdvertiseAddress is the IP address of the API server and the node for
	// members of the cluster. The default is BindAddress if that is one address,
	// or else the address of the default route, of any interface, or, without a
	// node, loopback.
	AdvertiseAddress net.IP `json:"advertiseAddress,omitzero"`
	// Ports are the ports to listen on.
	Ports Ports `json:"ports,omitzero"`

	// ServiceCIDR is the range of the Services' addresses, with 16 or more
	// addresses, or two ranges of different families separated by a comma. The
	// default is 10.96.0.0/16.
	ServiceCIDR string `json:"serviceCIDR,omitzero"`
	// ClusterCIDR is the range of the pods' addresses, or two ranges. The default
	// is 10.244.0.0/16.
	ClusterCIDR string `json:"clusterCIDR,omitzero"`
	// NodePorts is the range of the Services' ports on nodes. The default is
	// 30000-32767.
	NodePorts string `json:"nodePorts,omitzero"`
	// Encrypt encrypts what pods of different machines send each other, with WireGuard.
	// All machines of a cluster must agree on it. The default is not to.
	Encrypt bool `json:"encrypt,omitzero"`

	// Etcd stores the objects in etcd. The default is memory: the objects are
	// gone when Run returns.
	Etcd *EtcdOptions `json:"etcd,omitzero"`
	// Node runs containers on this machine, as root. The default is a control
	// plane without a node.
	Node *NodeOptions `json:"node,omitzero"`
	// Simulated are nodes without machines in the process of the control plane,
	// for tests of what many nodes and pods bring about. The default is none.
	Simulated *SimulatedNodes `json:"simulated,omitzero"`
	// NodeName is the name of this machine: of its node, and of its controller
	// manager and scheduler in leader election. The default is the host name in
	// lower case.
	NodeName string `json:"nodeName,omitzero"`

	// ControlPlane says what runs beside the API server.
	ControlPlane ControlPlaneOptions `json:"controlPlane,omitzero"`

	// APIServerArgs are upstream's flags of kube-apiserver, as name=value, such
	// as "enable-admission-plugins=AlwaysPullImages". They override other options.
	APIServerArgs []string `json:"apiserverArgs,omitzero"`
	// ControllerManagerArgs are flags of kube-controller-manager, as name=value.
	ControllerManagerArgs []string `json:"controllerManagerArgs,omitzero"`
	// SchedulerArgs are flags of kube-scheduler, as name=value.
	SchedulerArgs []string `json:"schedulerArgs,omitzero"`
	// KubeletArgs are flags of the kubelet, as name=value.
	KubeletArgs []string `json:"kubeletArgs,omitzero"`
	// ProxyArgs are flags of kube-proxy, as name=value.
	ProxyArgs []string `json:"proxyArgs,omitzero"`
	// EtcdArgs set etcd's flags of an embedded etcd.
	EtcdArgs []string `json:"etcdArgs,omitzero"`
}

// ControlPlaneOptions says what runs beside the API server.
type ControlPlaneOptions struct {
	// Controllers are the controllers to run, as in upstream's --controllers: "*" is
	// all that are on by default and those of bootstrap tokens, "NAME" turns one on,
	// "-NAME" turns one off, and "-*" alone runs none. The default is "*".
	Controllers []string `json:"controllers,omitzero"`
	// NoScheduler runs no scheduler: pods stay pending until something else binds
	// them.
	NoScheduler bool `json:"noScheduler,omitzero"`

	// Manifests are directories whose files are applied to the cluster at its start
	// and when they change: YAML or JSON, also in subdirectories, which only this
	// user and root can change. Removing a file removes no objects. A file that
	// cannot be applied is tried again, and is in Status. The default is none.
	Manifests []string `json:"manifests,omitzero"`

	// FollowAddress ends Cluster.Run with an error once the machine has lacked the address
	// of the API server for half a minute and has another one for it. Whoever runs the
	// cluster starts it again, and it begins with that address. Node.Run ends after it, if
	// the node has a process of its own. They go on if somebody gave the address, if other
	// machines have joined, if others may use the same etcd, and with simulated nodes. The
	// default is to go on in any case: Status has the loss.
	FollowAddress bool `json:"-"`
	// MoveMember is called before Cluster.Run ends by FollowAddress, if EtcdArgs make the
	// etcd a member of several and there is no other one. The next start must have EtcdArgs
	// with the address to in place of those that this machine does not have. After an error
	// the cluster goes on, and MoveMember is called again. The default is that such a cluster
	// goes on in any case.
	MoveMember func(ctx context.Context, to net.IP) error `json:"-"`
}

// EtcdOptions selects the etcd that stores a cluster's objects.
type EtcdOptions struct {
	// Servers are the URLs of an external etcd. The default is an embedded etcd,
	// in this process.
	Servers []string `json:"servers,omitzero"`
	// Socket is the unix socket of the embedded etcd. The default is
	// DataDir/etcd/etcd.sock.
	Socket string `json:"socket,omitzero"`
}

// NodeOptions configures how this machine runs containers.
type NodeOptions struct {
	// SeparateProcess says that another process runs the node (NewNode). Cluster.Run
	// keeps the files with which that process reaches the API server in DataDir/node.
	SeparateProcess bool `json:"separateProcess,omitzero"`
	// BundleDir holds the bundled container runtime and images (`make bundle`).
	BundleDir string `json:"bundleDir,omitzero"`
	// RunDir holds sockets, so that its path must be short. The default is
	// /run/coracle/NAME.
	RunDir string `json:"runDir,omitzero"`
	// ContainerRuntimeEndpoint is the CRI endpoint of a container runtime that
	// is not this cluster's. The default is the containerd of BundleDir.
	ContainerRuntimeEndpoint string `json:"containerRuntimeEndpoint,omitzero"`
	// CNIConfDir is where that runtime reads its CNI configuration, and this
	// cluster writes its own. By default the runtime brings a pod network.
	CNIConfDir string `json:"cniConfDir,omitzero"`
	// Network is "none" for another CNI plugin in place of the cluster's pod network and
	// its network policies. The containerd of BundleDir then reads the plugin's
	// configuration in CNIConfDir, by default /etc/cni/net.d, and runs the plugins in
	// /opt/cni/bin and BundleDir. The node is not Ready before a configuration is there.
	// The default is the cluster's network.
	Network string `json:"network,omitzero"`
	// Registries says how image registries are reached: their mirrors,
	// certificates and logins, in the form of k3s's registries.yaml. Paths in it
	// are absolute. It is for the containerd of BundleDir.
	Registries string `json:"registries,omitzero"`
	// NFTable is the nftables table of the proxy. The default is coracle-NAME.
	NFTable string `json:"nftTable,omitzero"`
	// CgroupRoot is the parent of the pods' cgroups. The default is /coracle-NAME.
	CgroupRoot string `json:"cgroupRoot,omitzero"`
	// Count is the number of nodes on this machine, each in a process of its own
	// (SeparateProcess), including those that have been removed. The default is 1.
	// Further nodes have network namespaces; they have their files in DataDir/nodes
	// and RunDir, and what has a name elsewhere has a suffix: .2, .3 and so on.
	Count int `json:"count,omitzero"`
	// Each configures these nodes, the first one first. Nodes at its end may be left
	// out.
	Each []EachNode `json:"each,omitzero"`
	// Present returns the names of the nodes that this machine has now, by number, or
	// nothing if it cannot find out. It is called every few seconds and must not
	// block. With it, nodes can be added and removed while the processes of the
	// others run, if these have begun with a Count of 2 or more. The default are the
	// nodes of Count and Each.
	Present func() map[int]string `json:"-"`
	// Number says which of these nodes NewNode returns. The default is 1, which is
	// the machine itself.
	Number int `json:"-"`
	// CIDR is the range of the addresses by which several nodes of this machine reach
	// each other, or two of different families with a comma between. The pods' families
	// are among them. The default is 10.212.0.0/24, fd00:10:212::/64 or both, as the
	// pods have.
	CIDR string `json:"cidr,omitzero"`
	// NeighbourPorts returns the ports of this machine that belong to other clusters,
	// also while these are stopped, so that no pod and no Service gets them. It is
	// called every few seconds and must not block. The default is none. Ports on
	// which a program listens need not be among them.
	NeighbourPorts func() []int `json:"-"`
	// Ingress configures the ingress controller, which the first node of a machine with
	// a control plane has.
	Ingress IngressOptions `json:"ingress,omitzero"`
	// Joined says that the control plane is on another machine. Then NewNode works,
	// and New does not. The default is nil.
	Joined *JoinedNode `json:"joined,omitzero"`
	// Behind describes the nodes of another machine of the cluster that has several. The
	// default is nil: there is none.
	Behind *NodesBehind `json:"behind,omitzero"`
}

// NodesBehind describes several nodes of another machine, which have addresses that are
// known there alone. This machine reaches the further ones by the first one.
type NodesBehind struct {
	// CIDR has the ranges of their addresses, in the form of NodeOptions.CIDR.
	CIDR string `json:"cidr"`
	// Node is the name of the first one.
	Node string `json:"node"`
}

// IngressOptions configures the ingress controller, which serves Ingresses of the class
// coracle. It opens its ports, at all addresses of the machine, while there is such an
// Ingress. If a port is taken, it tries again, and Node.Status says so.
type IngressOptions struct {
	// Off runs no ingress controller.
	Off bool `json:"off,omitzero"`
	// HTTPPort is the port of HTTP. The default is 80.
	HTTPPort int `json:"httpPort,omitzero"`
	// HTTPSPort is the port of HTTPS. The default is 443.
	HTTPSPort int `json:"httpsPort,omitzero"`
}

// JoinedNode describes the cluster of a node whose control plane is on another
// machine. Options.ServiceCIDR and Options.ClusterCIDR are those of the cluster,
// Options.AdvertiseAddress is the address of the node, which follows that of the machine
// if it is nil, and DataDir/node has the cluster's authority (ca.crt) and the identity
// of the kubelet (kubelet.kubeconfig), with which all components of the node work and
// which is renewed. The node has no DNS server, and makes no volumes of the class
// standard.
type JoinedNode struct {
	// Server is the URL of the API server.
	Server string `json:"server"`
	// NodeMaskSizeIPv4 is the prefix length of each node's part of the IPv4 range in
	// ClusterCIDR.
	NodeMaskSizeIPv4 int `json:"nodeMaskSizeIPv4"`
	// NodeMaskSizeIPv6 is that of the IPv6 range.
	NodeMaskSizeIPv6 int `json:"nodeMaskSizeIPv6"`
}

// FieldError is an error in a field of Options.
type FieldError struct {
	Field string // such as "ServiceCIDR" or "Ports.Secure"
	Value string // the value, or one element of a list; "" if Err says it
	Err   error  // what is wrong and what would be right
}

// Error implements error.
func (e *FieldError) Error() string {
	if e.Value == "" {
		return e.Field + ": " + e.Err.Error()
	}
	return e.Field + "=" + e.Value + ": " + e.Err.Error()
}

// Unwrap returns e.Err.
func (e *FieldError) Unwrap() error { return e.Err }

func wrong(field, value, format string, args ...any) error {
	return &FieldError{Field: field, Value: value, Err: fmt.Errorf(format, args...)}
}

// settings are options with their defaults filled in.
type settings struct {
	Options
	parsed parsed
}

// parsed are values of options that are text, and what follows from them.
type parsed struct {
	levels logging.Levels
	bind   net.IP
	dns    []string // addresses of the cluster's DNS
	// registries is the content of the registries file; nil for none.
	registries *registries.File
	// nodes are the ranges of the nodes' addresses; none without a node.
	nodes []netip.Prefix
	// firstNode is NodeName, from which the names of further nodes are derived.
	firstNode string
	// firstDir is DataDir, which has the directories of further nodes and the files
	// that users put there for all nodes.
	firstDir string
	// temporary says that DataDir is made and removed by Run.
	temporary bool
}

// maxNodeName is the longest name of a cluster with a node, whose sockets are
// below /run/coracle/NAME.
const maxNodeName = 57

// complete checks options and fills in their defaults. It changes nothing on
// the machine.
func complete(given Options) (*settings, error) {
	o, err := fill(given)
	if err == nil {
		err = o.checkNodes()
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

// fill is complete without the checks of several nodes, which do not matter for
// their removal.
func fill(given Options) (*settings, error) {
	o := &settings{Options: given}
	text := func(field *string, value string) { *field = cmp.Or(*field, value) }
	text(&o.Name, clusterdefaults.Name)
	if errs := validation.IsDNS1123Label(o.Name); len(errs) > 0 {
		return nil, wrong("Name", o.Name, "%s", strings.Join(errs, "; "))
	}
	if o.Node != nil && len(o.Name) > maxNodeName {
		return nil, wrong("Name", o.Name, "the name is part of the paths of sockets: choose one of at most %d characters", maxNodeName)
	}
	if o.Node == nil {
		text(&o.BindAddress, "127.0.0.1")
	}
	text(&o.BindAddress, "0.0.0.0") // for the node's pods
	text(&o.ServiceCIDR, clusterdefaults.ServiceCIDR)
	text(&o.ClusterCIDR, clusterdefaults.ClusterCIDR)
	if o.Encrypt {
		o.Ports.WireGuard = cmp.Or(o.Ports.WireGuard, clusterdefaults.WireGuardPort)
	}
	if o.Node != nil {
		node := *o.Node // do not change the caller's
		o.Node = &node
		text(&node.RunDir, clusternames.RunDir(o.Name))
		text(&node.NFTable, clusternames.ProxyTable(o.Name))
		text(&node.CgroupRoot, clusternames.CgroupRoot(o.Name))
		text(&node.CIDR, defaultNodeCIDR(o.ClusterCIDR))
		node.Count, node.Number = cmp.Or(node.Count, 1), cmp.Or(node.Number, 1)
		o.Ports.Kubelet = cmp.Or(o.Ports.Kubelet, clusterdefaults.KubeletPort)
		o.Ports.DNS = cmp.Or(o.Ports.DNS, clusterdefaults.DNSPort)
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.NodeName == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("name of this host: %w", err)
		}
		o.NodeName = strings.ToLower(host)
	}
	if errs := validation.IsDNS1123Subdomain(o.NodeName); len(errs) > 0 && (given.NodeName != "" || o.Node != nil) {
		return nil, wrong("NodeName", o.NodeName, "%s", strings.Join(errs, "; "))
	}
	if err := errors.Join(o.parse(), o.Ports.check()); err != nil {
		return nil, err
	}
	o.parsed.firstNode = o.NodeName
	return o, o.place()
}

// namedPort is a field of Ports.
type namedPort struct {
	field string
	value int
}

// fields returns the fields of p.
func (p Ports) fields() []namedPort {
	return []namedPort{
		{"Ports.Secure", p.Secure}, {"Ports.Manager", p.Manager}, {"Ports.Scheduler", p.Scheduler}, {"Ports.Kubelet", p.Kubelet},
		{"Ports.KubeletHealthz", p.KubeletHealthz}, {"Ports.ProxyHealthz", p.ProxyHealthz}, {"Ports.ProxyMetrics", p.ProxyMetrics}, {"Ports.DNS", p.DNS},
		{"Ports.DNSMetrics", p.DNSMetrics}, {"Ports.WireGuard", p.WireGuard},
	}
}

// all returns the ports that are set.
func (p Ports) all() []int {
	var ports []int
	for _, port := range p.fields() {
		if port.value != 0 {
			ports = append(ports, port.value)
		}
	}
	return ports
}

// check returns an error for each number that is not a port.
func (p Ports) check() error {
	var errs []error
	for _, port := range p.fields() {
		if port.value < 0 || port.value > 65535 {
			errs = append(errs, wrong(port.field, strconv.Itoa(port.value), "want a port from 1 to 65535"))
		}
	}
	return errors.Join(errs...)
}

// parse parses the fields that are text.
func (o *settings) parse() (err error) {
	if o.parsed.levels, err = logging.ParseLevels(o.LogLevels); err == nil {
		err = o.parsed.levels.Check(Components()...)
	}
	if err != nil {
		return &FieldError{Field: "LogLevels", Err: err}
	}
	if o.parsed.bind = net.ParseIP(o.BindAddress); o.parsed.bind == nil {
		return wrong("BindAddress", o.BindAddress, "want an IP address of this machine, or 0.0.0.0 for all")
	}
	if o.AdvertiseAddress != nil && o.AdvertiseAddress.To16() == nil {
		return wrong("AdvertiseAddress", o.AdvertiseAddress.String(), "want an IP address")
	}
	for r := range strings.SplitSeq(o.ClusterCIDR, ",") {
		if _, _, err := net.ParseCIDR(r); err != nil {
			return wrong("ClusterCIDR", o.ClusterCIDR, wantRange, clusterdefaults.ClusterCIDR)
		}
	}
	if o.parsed.dns, err = clusterDNS(o.ServiceCIDR); err != nil {
		return err
	}
	return o.parseRegistries()
}

// parseRegistries parses the registries file of the node.
func (o *settings) parseRegistries() (err error) {
	if o.Node == nil || o.Node.Registries == "" {
		return nil
	}
	if o.Node.ContainerRuntimeEndpoint != "" {
		return wrong("Node.Registries", "", "the container runtime is not the cluster's own: configure registries there")
	}
	if o.parsed.registries, err = registries.Parse(o.Node.Registries); err != nil {
		return &FieldError{Field: "Node.Registries", Err: err}
	}
	return nil
}

const wantRange = "want a range such as %s, or two of different families"

// temporaryDir returns the path of a directory that does not exist yet.
func temporaryDir(name string) string {
	return filepath.Join(os.TempDir(), "coracle-"+name+"-"+rand.Text())
}

// place determines the data directory, and checks options that exclude each
// other.
func (o *settings) place() error {
	switch {
	case o.Node != nil && o.Node.SeparateProcess && o.Ports.Secure == 0:
		return wrong("Ports.Secure", "0", "a node in a process of its own needs a port that stays")
	case o.Node != nil && o.InProcess:
		return wrong("InProcess", "true", "a node needs sockets: leave Node out")
	case o.Node != nil && o.DataDir == "":
		return wrong("DataDir", "", "a cluster with a node needs a data directory")
	case o.Etcd == nil && len(o.EtcdArgs) > 0:
		return wrong("EtcdArgs", o.EtcdArgs[0], "there is no etcd without Etcd")
	case o.DataDir == "":
		o.DataDir, o.parsed.temporary = temporaryDir(o.Name), true
		return nil
	}
	dir, err := filepath.Abs(o.DataDir)
	o.DataDir, o.parsed.firstDir = dir, dir
	return err
}
