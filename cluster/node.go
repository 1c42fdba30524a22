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

// Node is the part of a cluster that runs containers: kubelet, proxy, DNS
// server and the container runtime.
type Node struct {
	options *Options
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

// NewNode prepares a node that reaches its API server over HTTPS, by the files
// in NodeDir of the data directory; nothing runs before Run.
func NewNode(o Options) (*Node, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	e := newEvents(o.NodeName, false)
	group := supervise.NewGroup(supervise.Options{Context: logging.New(o.Log, o.LogLevels).Context, Changed: e.changed})
	n, err := newNode(&o, group, across{NodeDir(o.DataDir)})
	if err != nil {
		return nil, err
	}
	n.events = e
	return n, nil
}

func newNode(o *Options, group *supervise.Group, access access) (*Node, error) {
	n := &Node{options: o, group: group, access: access, ready: make(chan struct{}), kubelet: component.NewKubelet()}
	k := n.kubelet
	k.NodeName = o.NodeName
	k.RootDir = filepath.Join(o.DataDir, "kubelet")
	plane := &ControlPlane{options: o} // what the rest of the cluster occupies on this machine
	if err := plane.parseArguments(); err != nil {
		return nil, err
	}
	address, err := plane.api.Advertised()
	if err != nil {
		return nil, err
	}
	k.NodeIPs = []string{address.String()}
	k.HealthzPort = int32(o.Ports.KubeletHealthz)
	k.FailSwapOn = false
	k.Configuration.Port = int32(o.Ports.Kubelet)
	k.Configuration.CgroupRoot = o.CgroupRoot
	k.Configuration.PodLogsDir = filepath.Join(o.DataDir, "logs", "pods")
	protectDisk(&k.Configuration, diskSize(o.DataDir))
	if k.Configuration.ClusterDNS, err = clusterDNS(o.ServiceCIDR); err != nil {
		return nil, err
	}
	k.Configuration.ContainerRuntimeEndpoint = o.ContainerRuntimeEndpoint
	if o.ContainerRuntimeEndpoint == "" {
		if n.runtime, err = containerd.New(runtimeConfig(o.BundleDir, o.DataDir, o.RunDir, o.CgroupRoot)); err != nil {
			return nil, err
		}
		k.Configuration.ContainerRuntimeEndpoint = n.runtime.Endpoint()
	}
	if n.runtime != nil || o.CNIConfDir != "" {
		n.network = podnet.New(networkConfig(o))
	}
	n.proxy = component.NewProxy()
	n.proxy.Table = o.NFTable
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
		parse("kubelet", k.AddFlags, o.KubeletArgs),
		parse("proxy", n.proxy.AddFlags, o.ProxyArgs),
	)
	k.ReservedPorts = slices.DeleteFunc([]int{
		plane.api.SecurePort, plane.manager.Serving.Port, plane.scheduler.Serving.Port,
		int(k.Configuration.Port), int(k.HealthzPort), n.proxy.HealthzPort, n.proxy.MetricsPort, n.dns.Port,
	}, func(port int) bool { return port <= 0 })
	n.proxy.Reserved = k.ReservedPorts
	return n, err
}

// Ready is closed once the node is Ready.
func (n *Node) Ready() <-chan struct{} { return n.ready }

func runtimeConfig(bundle, dataDir, runDir, cgroupRoot string) containerd.Config {
	return containerd.Config{
		BundleDir: bundle, DataDir: filepath.Join(dataDir, "containerd"), RunDir: filepath.Join(runDir, "containerd"),
		CNIConfDir: filepath.Join(dataDir, "cni", "conf"), RegistryDir: filepath.Join(dataDir, "registries"), CgroupRoot: cgroupRoot,
	}
}

func networkConfig(o *Options) podnet.Config {
	c := podnet.Config{
		Name: o.Name, CNIConfDir: filepath.Join(o.DataDir, "cni", "conf"), LeaseDir: filepath.Join(o.DataDir, "cni", "leases"),
	}
	if o.CNIConfDir != "" {
		c.CNIConfDir = o.CNIConfDir
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

// Purge ends the containers of a cluster whose process has ended, and takes
// its pod network, Service rules and mounts away.
func Purge(ctx context.Context, o Options) error {
	if err := o.complete(); err != nil {
		return err
	}
	purge := func(ctx context.Context, o Options) error {
		runtime, err := containerd.New(runtimeConfig(o.BundleDir, o.DataDir, o.RunDir, o.CgroupRoot))
		if err != nil {
			return err
		}
		return runtime.Purge(ctx)
	}
	if o.ContainerRuntimeEndpoint != "" {
		purge = purgeOutside
	}
	if err := purge(ctx, o); err != nil {
		return fmt.Errorf("remove the containers: %w", err)
	}
	return errors.Join(
		podnet.New(networkConfig(&o)).Remove(),
		(&component.Proxy{Mode: "nftables", Table: o.NFTable, ClusterCIDR: o.ClusterCIDR}).RemoveRules(),
	)
}

// Status is how the components are, and a channel that is closed when that has
// changed.
func (n *Node) Status() (supervise.Status, <-chan struct{}) { return n.group.Status() }

// Run runs the node until ctx ends. A component that fails is started again.
// The containers go on when it returns.
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
			n.options.Progress("containerd is up")
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
					n.options.Progress("node " + nd.Name + " is Ready")
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
			n.options.Progress("pod network is " + strings.Join(wanted, ", "))
		}
		configured = wanted
	}
}
