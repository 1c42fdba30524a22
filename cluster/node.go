package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/component"
	"github.com/coracle-io/coracle/internal/component/apiserver"
	"github.com/coracle-io/coracle/internal/containerd"
	"github.com/coracle-io/coracle/internal/kubelet"
	"github.com/coracle-io/coracle/internal/logging"
	"github.com/coracle-io/coracle/internal/podnet"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Node is the part of a cluster that runs containers, in a process of its own:
// kubelet, proxy, DNS server and the container runtime. Its methods may be
// called by several goroutines.
type Node struct {
	*settings
	access  access
	group   *supervise.Group
	events  *events // nil: others tell them
	ready   chan struct{}
	told    sync.Once // ready is closed
	kubelet *component.Kubelet
	runtime *containerd.Runtime // nil: one that others run
	network *podnet.Network     // nil: a runtime of others that brings its own
	proxy   *component.Proxy
	dns     *component.DNS
}

// NewNode returns the node of a cluster whose control plane another process runs
// with the same options. It reaches the API server over HTTPS by the files in
// DataDir/node, which Prepare and Cluster.Run write. It starts nothing. Errors
// are as those of New.
func NewNode(o Options) (*Node, error) {
	if o.Node == nil {
		return nil, wrong("Node", "", "a node needs it")
	}
	settings, err := complete(o)
	if err != nil {
		return nil, err
	}
	e := newEvents(settings.NodeName, false)
	group := supervise.NewGroup(supervise.Options{Context: logging.New(settings.Log, settings.levels).Context, Changed: e.changed})
	n, err := newNode(settings, group, across{nodeDir(settings.DataDir)})
	if err != nil {
		return nil, err
	}
	n.events = e
	return n, nil
}

func newNode(o *settings, group *supervise.Group, access access) (*Node, error) {
	n := &Node{settings: o, group: group, access: access, ready: make(chan struct{}), kubelet: component.NewKubelet()}
	k := n.kubelet
	k.NodeName = o.NodeName
	k.RootDir = filepath.Join(o.DataDir, "kubelet")
	plane := &controlPlane{settings: o} // what the rest of the cluster occupies on this machine
	if err := plane.parseArguments(); err != nil {
		return nil, err
	}
	address, err := access.address(plane.api)
	if err != nil {
		return nil, err
	}
	k.NodeIPs = []string{address.String()}
	k.HealthzPort = int32(o.Ports.KubeletHealthz)
	k.FailSwapOn = false
	k.Configuration.Port = int32(o.Ports.Kubelet)
	k.Configuration.CgroupRoot = o.Node.CgroupRoot
	k.Configuration.PodLogsDir = filepath.Join(o.DataDir, "logs", "pods")
	protectDisk(&k.Configuration, diskSize(o.DataDir))
	k.Configuration.ClusterDNS = o.dns
	k.Configuration.ContainerRuntimeEndpoint = o.Node.ContainerRuntimeEndpoint
	if o.Node.ContainerRuntimeEndpoint == "" {
		if n.runtime, err = containerd.New(runtimeConfig(o)); err != nil {
			return nil, err
		}
		k.Configuration.ContainerRuntimeEndpoint = n.runtime.Endpoint()
	}
	if n.runtime != nil || o.Node.CNIConfDir != "" {
		n.network = podnet.New(networkConfig(o))
	}
	n.proxy = component.NewProxy()
	n.proxy.Table = o.Node.NFTable
	n.proxy.NodeName = o.NodeName
	n.proxy.HealthzPort, n.proxy.MetricsPort = o.Ports.ProxyHealthz, o.Ports.ProxyMetrics
	n.proxy.ClusterCIDR = o.ClusterCIDR
	n.dns = component.NewDNS()
	n.dns.ClusterDNS = k.Configuration.ClusterDNS
	if n.network != nil { // or else the runtime knows which addresses pods have
		n.dns.ClusterCIDR = o.ClusterCIDR
	}
	n.dns.Addresses, n.dns.Port, n.dns.NodeName = k.NodeIPs, o.Ports.DNS, o.NodeName
	err = errors.Join(
		o.set("KubeletArgs", k.AddFlags),
		o.set("ProxyArgs", n.proxy.AddFlags),
	)
	k.ReservedPorts = slices.DeleteFunc([]int{
		plane.api.SecurePort, plane.manager.Serving.Port, plane.scheduler.Serving.Port,
		int(k.Configuration.Port), int(k.HealthzPort), n.proxy.HealthzPort, n.proxy.MetricsPort, n.dns.Port,
	}, func(port int) bool { return port <= 0 })
	n.proxy.Reserved = k.ReservedPorts
	return n, err
}

// Ready returns a channel that is closed once the node is Ready. It is never
// closed if Run returns before.
func (n *Node) Ready() <-chan struct{} { return n.ready }

func runtimeConfig(o *settings) containerd.Config {
	return containerd.Config{
		BundleDir: o.Node.BundleDir, DataDir: filepath.Join(o.DataDir, "containerd"), RunDir: filepath.Join(o.Node.RunDir, "containerd"),
		CNIConfDir: filepath.Join(o.DataDir, "cni", "conf"), RegistryDir: filepath.Join(o.DataDir, "registries"), CgroupRoot: o.Node.CgroupRoot,
	}
}

func networkConfig(o *settings) podnet.Config {
	c := podnet.Config{
		Name: o.Name, CNIConfDir: filepath.Join(o.DataDir, "cni", "conf"), LeaseDir: filepath.Join(o.DataDir, "cni", "leases"),
	}
	if o.Node.CNIConfDir != "" {
		c.CNIConfDir = o.Node.CNIConfDir
	}
	c.ClusterCIDRs, c.ServiceCIDRs = prefixes(o.ClusterCIDR), prefixes(o.ServiceCIDR)
	return c
}

// prefixes are the ranges of a list with commas between, as far as they are
// ranges.
func prefixes(list string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range strings.Split(list, ",") {
		if p, err := netip.ParsePrefix(s); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// Purge ends the containers of a cluster whose processes have ended, and removes
// its pod network, Service rules and mounts. It keeps the data directory. Calling
// it again is no error.
func Purge(ctx context.Context, o Options) error {
	if o.Node == nil {
		return nil
	}
	settings, err := complete(o)
	if err != nil {
		return err
	}
	purge := purgeBundled
	if settings.Node.ContainerRuntimeEndpoint != "" {
		purge = purgeOutside
	}
	if err := purge(ctx, settings); err != nil {
		return fmt.Errorf("remove the containers: %w", err)
	}
	return errors.Join(
		podnet.New(networkConfig(settings)).Remove(),
		(&component.Proxy{Mode: "nftables", Table: settings.Node.NFTable, ClusterCIDR: settings.ClusterCIDR}).RemoveRules(),
	)
}

func purgeBundled(ctx context.Context, o *settings) error {
	runtime, err := containerd.New(runtimeConfig(o))
	if err != nil {
		return err
	}
	return runtime.Purge(ctx)
}

// Status returns the state of the node's components, and a channel that is
// closed when the state changes.
func (n *Node) Status() (Status, <-chan struct{}) { return n.group.Status() }

// Run runs the node until ctx ends, and then returns nil. It can be called once.
// A component that fails is restarted. Containers keep running when Run returns.
func (n *Node) Run(ctx context.Context) error {
	n.start(ctx)
	<-ctx.Done()
	n.group.Wait()
	return nil
}

// start starts the node's components.
func (n *Node) start(ctx context.Context) {
	if n.runtime != nil {
		n.group.Go(ctx, "containerd", n.runtime.Run)
	}
	n.group.Go(ctx, "podnet", n.access.with(apiserver.NodeKubelet, n.follow))
	n.group.Go(ctx, "kubelet", n.access.with(apiserver.NodeKubelet, n.runKubelet))
	n.group.Go(ctx, "proxy", n.access.with(apiserver.NodeProxy, n.proxy.RunWith))
	n.group.Go(ctx, "dns", n.access.with(apiserver.NodeDNS, n.dns.RunWith))
	if n.events != nil {
		n.group.Go(ctx, "events", n.access.with(apiserver.NodeKubelet, n.tell))
	}
}

// tell writes events about components that fail.
func (n *Node) tell(ctx context.Context, provider client.Provider) error {
	own, err := n.own(provider)
	if err != nil {
		return err
	}
	return n.events.run(ctx, own.Kubernetes)
}

// own is a client with the node's identity.
func (n *Node) own(provider client.Provider) (*client.Client, error) {
	return provider.As("system:node:"+n.kubelet.NodeName, "system:nodes", "system:authenticated")
}

func (n *Node) runKubelet(ctx context.Context, provider client.Provider) error {
	if n.runtime != nil {
		select {
		case <-n.runtime.Ready():
			n.Progress("containerd is up")
		case <-ctx.Done():
			return nil
		}
	}
	return n.kubelet.RunWith(ctx, provider, func(config *kubelet.Config) (err error) {
		config.GetCertificate, config.ClientCAs, err = n.access.serving(config.NodeName, config.NodeIPs)
		return err
	})
}

// follow watches the node's own object: it sets up the pod network once the
// pod CIDRs are assigned, and tells when this node's kubelet has reported that
// the node is Ready.
func (n *Node) follow(ctx context.Context, provider client.Provider) error {
	own, err := n.own(provider)
	if err != nil {
		return err
	}
	informer := own.Watch(v1.SchemeGroupVersion.WithResource("nodes"), "", fields.OneTermEqualSelector("metadata.name", n.kubelet.NodeName))
	began := time.Now().Truncate(time.Second) // what a former kubelet reported does not count; the API has whole seconds
	podCIDRs := make(chan []string, 1)
	take := func(obj any) {
		nd := obj.(*v1.Node)
		if len(nd.Spec.PodCIDRs) > 0 {
			select {
			case <-podCIDRs: // former ones that nobody has taken
			default:
			}
			podCIDRs <- nd.Spec.PodCIDRs
		}
		for _, c := range nd.Status.Conditions {
			if c.Type == v1.NodeReady && c.Status == v1.ConditionTrue && !c.LastHeartbeatTime.Time.Before(began) {
				n.told.Do(func() {
					n.Progress("node " + nd.Name + " is Ready")
					close(n.ready)
				})
			}
		}
	}
	if _, err := client.Follow(ctx, informer, cache.ResourceEventHandlerFuncs{
		AddFunc: take, UpdateFunc: func(_, obj any) { take(obj) },
	}); err != nil {
		return err
	}
	if n.network == nil {
		<-ctx.Done()
		return nil
	}
	return n.keepNetwork(ctx, podCIDRs)
}

// networkPeriod is how often the pod network is compared with what it should
// be: others on the machine flush nftables and remove interfaces.
const networkPeriod = 3 * time.Second

// keepNetwork sets the pod network up for the newest pod CIDRs, and again when
// something of it is gone, until ctx ends.
func (n *Node) keepNetwork(ctx context.Context, podCIDRs <-chan []string) error {
	log := klog.FromContext(ctx)
	check := time.NewTicker(networkPeriod)
	defer check.Stop()
	var wanted, configured []string
	for {
		select {
		case <-ctx.Done():
			return nil
		case wanted = <-podCIDRs:
			if slices.Equal(wanted, configured) {
				continue
			}
		case <-check.C:
			if wanted == nil {
				continue
			}
			if configured != nil {
				missing, err := n.network.Missing(wanted)
				if err == nil && missing == "" {
					continue
				}
				log.Error(err, "The pod network is not as it was set up; setting it up again", "missing", missing)
			}
		}
		err := n.network.Configure(wanted)
		supervise.Report(ctx, "PodNetwork", err)
		if err != nil {
			log.Error(err, "Setting the pod network up failed, will try again", "in", networkPeriod)
			configured = nil
			continue
		}
		if !slices.Equal(wanted, configured) {
			n.Progress("pod network is " + strings.Join(wanted, ", "))
		}
		configured = wanted
	}
}
