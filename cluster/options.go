// Package cluster runs a whole Kubernetes cluster inside a Go program: store,
// API server, controllers and scheduler, and optionally a node with kubelet,
// container runtime, proxy and DNS.
//
// The zero value of [Options] is a control plane that keeps its objects in
// memory and listens on a free port of loopback. It runs as any user and leaves
// no files. Any number of clusters run in one process:
//
//	c, err := cluster.New(cluster.Options{})
//	go c.Run(ctx) // until ctx ends; wait for it, for it removes what it made
//	<-c.APIReady()
//	pods, err := c.Client().CoreV1().Pods("").List(ctx, metav1.ListOptions{})
//
// In tests, clustertest.Start does so.
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
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/coracle-io/coracle/internal/logging"
)

// Ports are the TCP ports that a cluster listens on. Those after Scheduler are
// the node's.
type Ports struct {
	Secure         int // API server, HTTPS; 0 is a free port
	Manager        int // health and metrics of the controller manager, HTTPS on loopback; 0 is none
	Scheduler      int // health and metrics of the scheduler, HTTPS on loopback; 0 is none
	Kubelet        int // HTTPS; 0 is 10250
	KubeletHealthz int // on loopback; 0 is none
	ProxyHealthz   int // 0 is none
	ProxyMetrics   int // on loopback; 0 is none
	DNS            int // TCP and UDP on the node's address; 0 is 10053
}

// Options say what a cluster is made of. The zero value is described in the
// package comment.
type Options struct {
	// Name distinguishes clusters with nodes on one machine. It is a DNS label;
	// the default is "coracle".
	Name string
	// DataDir holds keys, the data of an embedded etcd and the files of the node.
	// The default is a temporary directory that Run makes and removes. A cluster
	// with a node must have a DataDir.
	DataDir string

	// Log receives the log, one line per Write. The default discards it.
	Log io.Writer
	// LogLevels sets how much is logged, from 0 to 10: "2", or per component
	// "2,kubelet=5". The default is 0.
	LogLevels string
	// Progress is called with a line of text at each stage of the start, from
	// several goroutines. It must not block. The default does nothing.
	Progress func(stage string)

	// InProcess makes the cluster open no sockets. Only Cluster.Client and
	// Cluster.Config reach its API server, and it has no node. It is for
	// testing/synctest, whose clock stands still while a goroutine waits for
	// the network.
	InProcess bool
	// BindAddress is the IP address that the API server listens on. The default
	// is 127.0.0.1, and with a node 0.0.0.0, so that its pods reach the server.
	BindAddress string
	// AdvertiseAddress is the IP address of the API server and the node for
	// members of the cluster. The default is the address of the default route.
	AdvertiseAddress net.IP
	// Ports are the ports to listen on.
	Ports Ports

	// ServiceCIDR is the range of the Services' addresses, with 16 or more
	// addresses, or two ranges of different families separated by a comma. The
	// default is 10.96.0.0/16.
	ServiceCIDR string
	// ClusterCIDR is the range of the pods' addresses, or two ranges. The default
	// is 10.244.0.0/16.
	ClusterCIDR string
	// NodePorts is the range of the Services' ports on nodes. The default is
	// 30000-32767.
	NodePorts string

	// Etcd stores the objects in etcd. The default is memory: the objects are
	// gone when Run returns.
	Etcd *EtcdOptions
	// Node runs containers on this machine, as root. The default is a control
	// plane without a node.
	Node *NodeOptions
	// NodeName is the name of this machine: of its node, and of its controller
	// manager and scheduler in leader election. The default is the host name in
	// lower case.
	NodeName string

	// APIServerArgs and the following set upstream's flags of the components, as
	// name=value, such as "enable-admission-plugins=AlwaysPullImages". They
	// override other options.
	APIServerArgs, ControllerManagerArgs, SchedulerArgs, KubeletArgs, ProxyArgs []string
	// EtcdArgs set etcd's flags of an embedded etcd.
	EtcdArgs []string
}

// EtcdOptions say which etcd stores a cluster's objects.
type EtcdOptions struct {
	// Servers are the URLs of an external etcd. The default is an embedded etcd,
	// in this process.
	Servers []string
	// Socket is the unix socket of the embedded etcd. The default is
	// DataDir/etcd/etcd.sock.
	Socket string
}

// NodeOptions say how this machine runs containers.
type NodeOptions struct {
	// Apart says that another process runs the node (NewNode). Cluster.Run keeps
	// the files by which that process reaches the API server in DataDir/node.
	Apart bool
	// BundleDir holds the bundled container runtime and images (`make bundle`).
	BundleDir string
	// RunDir holds sockets, so that its path must be short. The default is
	// /run/coracle/NAME.
	RunDir string
	// ContainerRuntimeEndpoint is the CRI endpoint of a container runtime that
	// is not this cluster's. The default is the containerd of BundleDir.
	ContainerRuntimeEndpoint string
	// CNIConfDir is where that runtime reads its CNI configuration, and this
	// cluster writes its own. By default the runtime brings a pod network.
	CNIConfDir string
	// NFTable is the nftables table of the proxy. The default is coracle-NAME.
	NFTable string
	// CgroupRoot is the parent of the pods' cgroups. The default is /coracle-NAME.
	CgroupRoot string
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

// settings are options with their defaults.
type settings struct {
	Options
	levels    logging.Levels
	temporary bool // DataDir is made and removed by Run
	bind      net.IP
	dns       []string // addresses of the cluster's DNS
}

// complete checks options and fills in their defaults. It changes nothing on
// the machine.
func complete(given Options) (*settings, error) {
	o := &settings{Options: given}
	text := func(field *string, value string) { *field = cmp.Or(*field, value) }
	text(&o.Name, "coracle")
	if errs := validation.IsDNS1123Label(o.Name); len(errs) > 0 {
		return nil, wrong("Name", o.Name, "%s", strings.Join(errs, "; "))
	}
	if o.Node == nil {
		text(&o.BindAddress, "127.0.0.1")
	}
	text(&o.BindAddress, "0.0.0.0") // for the node's pods
	text(&o.ServiceCIDR, "10.96.0.0/16")
	text(&o.ClusterCIDR, "10.244.0.0/16")
	if o.Node != nil {
		node := *o.Node // the caller's stays as it is
		o.Node = &node
		text(&node.RunDir, "/run/coracle/"+o.Name)
		text(&node.NFTable, "coracle-"+o.Name)
		text(&node.CgroupRoot, "/coracle-"+o.Name)
		o.Ports.Kubelet = cmp.Or(o.Ports.Kubelet, 10250)
		o.Ports.DNS = cmp.Or(o.Ports.DNS, 10053)
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
	if err := o.parse(); err != nil {
		return nil, err
	}
	return o, o.place()
}

// parse reads the fields that are text.
func (o *settings) parse() (err error) {
	if o.levels, err = logging.ParseLevels(o.LogLevels); err == nil {
		err = o.levels.Check(components()...)
	}
	if err != nil {
		return &FieldError{Field: "LogLevels", Err: err}
	}
	if o.bind = net.ParseIP(o.BindAddress); o.bind == nil {
		return wrong("BindAddress", o.BindAddress, "not an IP address")
	}
	for r := range strings.SplitSeq(o.ClusterCIDR, ",") {
		if _, _, err := net.ParseCIDR(r); err != nil {
			return wrong("ClusterCIDR", o.ClusterCIDR, wantRange)
		}
	}
	o.dns, err = clusterDNS(o.ServiceCIDR)
	return err
}

const wantRange = "want a range such as 10.96.0.0/16, or two of different families"

// temporaryDir is a directory that is not there yet.
func temporaryDir(name string) string {
	return filepath.Join(os.TempDir(), "coracle-"+name+"-"+rand.Text())
}

// place settles where the cluster has its files, and checks what excludes each
// other.
func (o *settings) place() error {
	switch {
	case o.Ports.Secure < 0 || o.Ports.Secure > 65535:
		return wrong("Ports.Secure", fmt.Sprint(o.Ports.Secure), "want a port from 1 to 65535, or 0 for a free one")
	case o.Node != nil && o.Node.Apart && o.Ports.Secure == 0:
		return wrong("Ports.Secure", "0", "a node in a process of its own needs a port that stays")
	case o.Node != nil && o.InProcess:
		return wrong("InProcess", "true", "a node needs sockets: leave Node out")
	case o.Node != nil && o.DataDir == "":
		return wrong("DataDir", "", "a cluster with a node needs a data directory")
	case o.Etcd == nil && len(o.EtcdArgs) > 0:
		return wrong("EtcdArgs", o.EtcdArgs[0], "there is no etcd without Etcd")
	case o.DataDir == "":
		o.DataDir, o.temporary = temporaryDir(o.Name), true
		return nil
	}
	dir, err := filepath.Abs(o.DataDir)
	o.DataDir = dir
	return err
}
