// Package cluster is a whole Kubernetes cluster as a value: etcd (or a store
// in memory), API server, controllers, scheduler, and a node with kubelet,
// container runtime, proxy and DNS, all in this process.
//
//	c, err := cluster.New(cluster.Options{DataDir: dir})
//	go c.Run(ctx)
//	<-c.APIReady()
//	pods, err := c.Client().CoreV1().Pods("").List(ctx, metav1.ListOptions{})
package cluster

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/coracle-io/coracle/internal/logging"
)

// Ports that a cluster listens on.
type Ports struct {
	Secure         int // API server, HTTPS
	Manager        int // controller manager's health and metrics, HTTPS on loopback; 0 is none
	Scheduler      int // scheduler's likewise
	Kubelet        int // HTTPS
	KubeletHealthz int // loopback
	ProxyHealthz   int
	ProxyMetrics   int // loopback
	DNS            int // on the node's address
}

// Options say what a cluster is made of.
type Options struct {
	// Name tells clusters on one machine apart; "" is "coracle".
	Name string
	// DataDir keeps everything that must outlive the process.
	DataDir string
	// RunDir keeps sockets; "" is a short path below /run.
	RunDir string
	// EtcdSocket is the unix socket of the embedded etcd; "" is etcd.sock in
	// its folder in DataDir.
	EtcdSocket string
	// BundleDir has the container runtime and images (`make bundle`).
	BundleDir string
	// Log takes the log lines; nil throws them away.
	Log io.Writer `json:"-"`
	// LogLevels says how much each component logs.
	LogLevels logging.Levels

	BindAddress string // "" is every address
	NodeIP      net.IP // nil: the address of the default route
	Ports       Ports
	ServiceCIDR string // "" is 10.96.0.0/16
	ClusterCIDR string // "" is 10.244.0.0/16
	NodePorts   string // "" is 30000-32767

	// InMemory keeps objects in memory instead of etcd: nothing survives.
	InMemory bool
	// EtcdServers are those of an external etcd; none is an embedded one.
	EtcdServers []string

	// WithoutNode leaves out kubelet, runtime, proxy and DNS.
	WithoutNode bool
	NodeName    string // "" is the host's name
	// ContainerRuntimeEndpoint is a CRI runtime run by others; "" is ours.
	ContainerRuntimeEndpoint string
	// CNIConfDir is where such a runtime finds the CNI configuration of its
	// pod network, to put this cluster's there; "" is a runtime that brings a
	// pod network of its own.
	CNIConfDir string
	NFTable    string // nftables table of the proxy; "" is "coracle-NAME"
	CgroupRoot string // parent of the pods' cgroups; "" is "/coracle-NAME"

	// Arguments for the components, as name=value of upstream's flags.
	APIServerArgs, ControllerManagerArgs, SchedulerArgs, KubeletArgs, ProxyArgs []string
	// EtcdArgs are etcd's own flags, for the embedded one.
	EtcdArgs []string

	// Progress is told what is up; nil is fine.
	Progress func(stage string) `json:"-"`
}

func (o *Options) complete() error {
	text := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	text(&o.Name, "coracle")
	if errs := validation.IsDNS1123Label(o.Name); len(errs) > 0 {
		return fmt.Errorf("cluster name %q: %s", o.Name, strings.Join(errs, "; "))
	}
	if o.DataDir == "" {
		return fmt.Errorf("a cluster needs a data directory")
	}
	dir, err := filepath.Abs(o.DataDir)
	if err != nil {
		return err
	}
	o.DataDir = dir
	text(&o.RunDir, "/run/coracle/"+o.Name)
	text(&o.ServiceCIDR, "10.96.0.0/16")
	text(&o.ClusterCIDR, "10.244.0.0/16")
	text(&o.NFTable, "coracle-"+o.Name)
	text(&o.CgroupRoot, "/coracle-"+o.Name)
	text(&o.BindAddress, "0.0.0.0")
	if o.NodeName == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("name of this host: %w", err)
		}
		o.NodeName = strings.ToLower(host)
	}
	for _, c := range []struct{ flag, cidr string }{{"service-cidr", o.ServiceCIDR}, {"cluster-cidr", o.ClusterCIDR}} {
		for r := range strings.SplitSeq(c.cidr, ",") {
			if _, _, err := net.ParseCIDR(r); err != nil {
				return fmt.Errorf("--%s=%s: want a range such as 10.96.0.0/16, or two of different families", c.flag, c.cidr)
			}
		}
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	return nil
}
