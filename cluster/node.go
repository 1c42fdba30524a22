package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/clusterdefaults"
	"github.com/coracle-io/coracle/internal/clusternames"
	"github.com/coracle-io/coracle/internal/component"
	"github.com/coracle-io/coracle/internal/component/apiserver"
	"github.com/coracle-io/coracle/internal/containerd"
	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/kubelet"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/hostpath"
	"github.com/coracle-io/coracle/internal/localvolume"
	"github.com/coracle-io/coracle/internal/logging"
	"github.com/coracle-io/coracle/internal/nodeaddress"
	"github.com/coracle-io/coracle/internal/nodestatus"
	"github.com/coracle-io/coracle/internal/podnet"
	"github.com/coracle-io/coracle/internal/segment"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Node is the part of a cluster that runs containers, in a process of its own:
// kubelet, proxy, DNS server and container runtime. Its methods may be called
// by several goroutines.
type Node struct {
	settings  *settings // of this node
	access    access
	group     *supervise.Group
	events    *events // nil if the control plane's process writes them
	ran       atomic.Bool
	ready     chan struct{}
	readyOnce sync.Once     // closes ready
	begun     chan struct{} // closed once the kubelet has a runtime
	begunOnce sync.Once     // closes begun
	kubelet   *component.Kubelet
	runtime   *containerd.Runtime // nil if the runtime is not the bundled one
	network   *podnet.Network     // nil: a runtime of others that brings its own
	proxy     *component.Proxy
	policies  *component.NetworkPolicy // nil if the pod network is not Coracle's
	dns       *component.DNS
	ingress   *component.Ingress // nil if the node has none
	leave     context.CancelCauseFunc
	addresses *nodeaddress.Follower // the node's own ones, and what changes them
	keeper    *nodeaddress.Keeper   // of a node that ends when its server has another address; nil for others

	joined        step                        // one of several nodes has set up its part of the segment
	nodeMaskSizes [2]int                      // prefix lengths of each node's pod CIDRs, IPv4 and IPv6
	peers         *peers                      // the other nodes, as the component routes sees them
	routed        step                        // that component has applied its first plan
	behind        atomic.Pointer[NodesBehind] // nil: none
	encryption    *encryption                 // nil: packets to other machines are not encrypted, or this is a further node
}

// step is something that happens once.
type step struct {
	done chan struct{} // closed by reach
	once *sync.Once
}

func newStep() step { return step{make(chan struct{}), new(sync.Once)} }

func (s step) reach() { s.once.Do(func() { close(s.done) }) }

// NewNode returns the node of a cluster whose control plane another process
// runs with the same options. It reaches the API server over HTTPS with the
// files in DataDir/node, which Prepare and Cluster.Run write. NewNode starts
// nothing. It returns the same errors as New.
//
// NodeOptions.Number selects one of several nodes. A further node is for a
// process that EnterNode has started.
func NewNode(o Options) (*Node, error) {
	if o.Node == nil {
		return nil, wrong("Node", "", "a node needs it")
	}
	settings, err := complete(o)
	if err != nil {
		return nil, err
	}
	plane, err := configurePlane(settings)
	if err != nil {
		return nil, err
	}
	plane.settings = settings.node(settings.Node.Number)
	log, access := logging.New(settings.Log, settings.parsed.levels), remoteAccess{dir: nodeDir(plane.settings.DataDir), open: &connections{}}
	if plane.settings.further() {
		inside, err := plane.settings.member().Inside()
		if err != nil {
			return nil, err
		}
		if !inside {
			return nil, wrong("Node.Number", strconv.Itoa(settings.Node.Number), "this process is not in the node's network namespace: call EnterNode first")
		}
		log, access.own = log.Of(plane.settings.NodeName), plane.settings.nodeAddresses()
	}
	e := newEvents(plane.settings.NodeName, false)
	group := supervise.NewGroup(supervise.Options{Context: log.Context, Changed: e.changed})
	n, err := newNode(plane, group, access.of(plane.settings))
	if err != nil {
		return nil, err
	}
	n.events = e
	return n, nil
}

// newNode returns the node of a cluster whose control plane has a configuration.
func newNode(plane *planeConfiguration, group *supervise.Group, access access) (*Node, error) {
	o := plane.settings
	n := &Node{settings: o, group: group, access: access, ready: make(chan struct{}), begun: make(chan struct{}), kubelet: component.NewKubelet()}
	n.peers, n.joined, n.routed = newPeers(o.NodeName), newStep(), newStep()
	n.behind.Store(o.Node.Behind)
	ipam, k := &plane.manager.Options.NodeIPAM, n.kubelet
	n.nodeMaskSizes = [2]int{ipam.MaskSizeIPv4(), ipam.MaskSizeIPv6()}
	if o.joined() {
		n.configureJoined()
	}
	k.Config.NodeName = o.NodeName
	k.Config.RootDirectory = defaultKubeletRoot(o)
	addresses, err := access.addresses(plane.api)
	if err != nil {
		return nil, err
	}
	for _, a := range o.withSegment(addresses) {
		k.Config.NodeIPs = append(k.Config.NodeIPs, a.String())
	}
	k.Config.Configuration.HealthzPort, k.Config.Configuration.FailSwapOn = new(int32(o.Ports.KubeletHealthz)), new(false)
	k.Config.Configuration.Port = int32(o.Ports.Kubelet)
	k.Config.Configuration.CgroupRoot = o.Node.CgroupRoot
	k.Config.Configuration.PodLogsDir = filepath.Join(o.DataDir, "logs", "pods")
	protectDisk(&k.Config.Configuration, diskSize(o.DataDir))
	k.Config.Configuration.ClusterDNS = o.parsed.dns
	k.Config.Configuration.ContainerRuntimeEndpoint = o.Node.ContainerRuntimeEndpoint
	if o.Node.ContainerRuntimeEndpoint == "" {
		if n.runtime, err = containerd.New(runtimeConfig(o)); err != nil {
			return nil, err
		}
		k.Config.Configuration.ContainerRuntimeEndpoint = n.runtime.Endpoint()
		k.Config.RuntimeProcess.DeleteTask = n.runtime.DeleteTask
	}
	n.proxy = component.NewProxy()
	n.proxy.Table = o.Node.NFTable
	n.proxy.NodeName, n.proxy.ClusterCIDR = o.NodeName, o.ClusterCIDR
	n.proxy.HealthzPort, n.proxy.MetricsPort = o.Ports.ProxyHealthz, o.Ports.ProxyMetrics
	n.proxy.ConntrackMaxPerCore = 0 // it is the machine's limit, which stays when the cluster is gone
	n.dns = component.NewDNS()
	k.Config.Configuration.ClusterDomain = n.dns.Domain
	n.dns.Announce = k.Config.Configuration.ClusterDNS
	n.dns.Addresses, n.dns.Port, n.dns.MetricsPort, n.dns.NodeName = k.Config.NodeIPs, o.Ports.DNS, o.Ports.DNSMetrics, o.NodeName
	err = errors.Join(
		o.setKubelet(o.Node.Number, k.AddFlags),
		o.set("ProxyArgs", n.proxy.AddFlags),
	)
	n.dns.Addresses = answering(n.dns.Addresses, k.Config.NodeIPs, n.dns.Announce, machineAddresses())
	n.addresses = o.follow(k, access.reconnect)
	if o.followsAddress() && !o.further() {
		n.keeper = nodeKeeper(n, plane.api.NodeAddress)
	}
	n.shareResolvers()
	served, unknown := n.proxy.Ports()
	err = errors.Join(err, unknown)
	n.proxy.Reserved = slices.DeleteFunc(append(served,
		plane.api.Serving.Port, plane.manager.Serving.Port, plane.scheduler.Serving.Port,
		int(k.Config.Configuration.Port), int(*k.Config.Configuration.HealthzPort), n.dns.Port, n.dns.MetricsPort,
		o.Ports.WireGuard, podnet.TunnelPort, // which another cluster of this machine may use
	), func(port int) bool { return port <= 0 })
	if !o.further() { // which has its ports for itself
		n.proxy.NeighbourPorts = o.Node.NeighbourPorts
	}
	if o.ownNetwork() {
		network := networkConfig(o)
		network.Address = n.primary
		n.network, n.encryption = podnet.New(network), newEncryption(o)
		n.dns.ClusterCIDR, n.dns.Nodes = o.ClusterCIDR, n.peers.has
		mode, unknown := n.proxy.Mode()
		if err == nil { // otherwise it may be the same one
			err = unknown
		}
		n.policies = newNetworkPolicy(o, mode)
		n.proxy.Collectors = append(n.proxy.Collectors, n.policies.Metrics())
		k.Config.NetworkPolicies = n.policies
	}
	n.configureIngress()
	return n, err
}

// Ready returns a channel that is closed once the node is Ready or, with
// NodeOptions.Network, waits for nothing but the network. It is never closed if Run
// returns before.
func (n *Node) Ready() <-chan struct{} { return n.ready }

func runtimeConfig(o *settings) containerd.Config {
	c := containerd.Config{
		BundleDir: o.Node.BundleDir, DataDir: filepath.Join(o.DataDir, "containerd"), RunDir: filepath.Join(o.Node.RunDir, "containerd"),
		CNIConfDir: filepath.Join(o.DataDir, "cni", "conf"), DropInDir: filepath.Join(o.parsed.firstDir, "containerd.d"), CgroupRoot: o.Node.CgroupRoot,
		RegistryDir: filepath.Join(o.parsed.firstDir, "registries"), Registries: o.parsed.registries,
	}
	if o.Node.Network == noNetwork {
		c.CNIConfDir, c.CNIBinDirs = cmp.Or(o.Node.CNIConfDir, otherCNIConfDir), []string{otherCNIBinDir}
	}
	return c
}

func networkConfig(o *settings) podnet.Config {
	c := podnet.Config{
		Name: o.own(), CNIConfDir: filepath.Join(o.DataDir, "cni", "conf"), LeaseDir: filepath.Join(o.DataDir, "cni", "leases"),
	}
	if o.Node.CNIConfDir != "" && o.Node.Network == "" {
		c.CNIConfDir = o.Node.CNIConfDir
	}
	if !o.further() { // whose settings go with its namespace
		c.Forwarding = "/run"
	}
	c.ClusterCIDRs, c.ServiceCIDRs = prefixes(o.ClusterCIDR), prefixes(o.ServiceCIDR)
	c.Encrypt = o.Encrypt && !o.further() // which has no tunnel
	if o.several() && !o.further() {
		c.Nodes, c.NodesLink = o.parsed.nodes, o.segment().Link()
	}
	return c
}

// newNetworkPolicy returns what enforces the network policies of the node, whose proxy
// has a mode.
func newNetworkPolicy(o *settings, proxyMode string) *component.NetworkPolicy {
	return component.NewNetworkPolicy(component.NetworkPolicyConfig{
		NodeName: o.NodeName, Table: clusternames.PolicyTable(o.Node.NFTable), Bridge: clusternames.Bridge(o.own()),
		ProxyMode: proxyMode, IngressPorts: o.ingressPorts(),
	})
}

// prefixes parses a comma-separated list of ranges and skips malformed ones.
func prefixes(list string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range strings.Split(list, ",") {
		if p, err := netip.ParsePrefix(s); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// Purge ends the containers of a cluster whose processes have ended, and
// removes its pod network, the rules of Services and network policies, mounts,
// and the network namespaces of further nodes. It keeps the data directory.
// Calling it again is no error. What fails for one node does not keep it from the
// others.
func Purge(ctx context.Context, o Options) error {
	return purgeNodes(o, func(node *settings) error { return node.purge(ctx) })
}

// PurgeNode is Purge for one further node, numbered from 2, whose process has ended.
// The other nodes may run, and stay.
func PurgeNode(ctx context.Context, o Options, number int) error {
	if o.Node == nil || number < 2 || number > clusterdefaults.MaxNodes {
		return wrong("Node", strconv.Itoa(number), "want a further node, from 2 to %d", clusterdefaults.MaxNodes)
	}
	settings, err := fill(o)
	if err != nil {
		return err
	}
	return settings.node(number).purge(ctx)
}

// PurgeNetwork removes from the network of this machine what Purge removes there,
// and nothing else: the interfaces and nftables tables of a cluster whose
// processes and containers have ended.
func PurgeNetwork(o Options) error { return purgeNodes(o, (*settings).purgeNetwork) }

// purgeNodes calls purge for each node of a cluster, the first one last, and
// removes the segment between them.
func purgeNodes(o Options, purge func(node *settings) error) error {
	if o.Node == nil {
		return nil
	}
	settings, err := fill(o)
	if err != nil {
		return err
	}
	var errs []error
	// The number may be that of a damaged file.
	for number := min(max(settings.Node.Count, 1), clusterdefaults.MaxNodes); number > 0; number-- {
		if err := purge(settings.node(number)); err != nil {
			errs = append(errs, fmt.Errorf("node %d: %w", number, err))
		}
	}
	if settings.several() {
		errs = append(errs, settings.segment().Remove())
	}
	return errors.Join(errs...)
}

// purge removes one node.
func (o *settings) purge(ctx context.Context) error {
	purge := purgeBundled
	if o.Node.ContainerRuntimeEndpoint != "" {
		purge = purgeExternal
	}
	if err := purge(ctx, o); err != nil {
		return fmt.Errorf("remove the containers: %w", err)
	}
	root := rootOfKubelet(o)
	if err := unmountKubelet(root); err != nil {
		return err
	}
	if err := hostpath.RemoveMarks(root); err != nil {
		o.Progress("a directory for the logs of pods is left: " + strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return o.purgeNetwork()
}

// purgeNetwork removes the network of one node.
func (o *settings) purgeNetwork() error {
	network := podnet.New(networkConfig(o))
	if o.further() { // its rules go with its namespace
		if err := network.Remove(); err != nil {
			return err
		}
		return o.member().Remove()
	}
	proxy := component.NewProxy()
	_ = o.set("ProxyArgs", proxy.AddFlags) // what is not the proxy's; with wrong arguments it never ran
	proxy.Table = o.Node.NFTable
	// The network is last, so that two clusters that are removed at a time do not take each
	// other's tables for those of a cluster that stays.
	return errors.Join(proxy.RemoveRules(), newNetworkPolicy(o, "").RemoveRules(), network.Remove())
}

func purgeBundled(ctx context.Context, o *settings) error {
	config := runtimeConfig(o)
	runtime, err := containerd.New(config)
	if err != nil {
		return err
	}
	if o.Node.Network == noNetwork {
		if err := containerd.Detach(ctx, config); err != nil { // such as a plugin that needs the API server
			o.Progress("not all that the CNI plugin has made for pods was removed: " + strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
	return runtime.Purge(ctx)
}

// Status returns the state of the node's components, and a channel that is
// closed when the state changes.
func (n *Node) Status() (Status, <-chan struct{}) { return status(n.group) }

// Run runs the node until ctx ends, and then returns nil. A second call returns
// an error. A component that fails is restarted. Containers keep running when Run
// returns. For a further node, Run returns an error if the node has lost its
// interface to the machine, which EnterNode in another process restores. Run also
// returns one as ControlPlaneOptions.FollowAddress says.
func (n *Node) Run(ctx context.Context) error {
	if n.ran.Swap(true) {
		return errRanBefore
	}
	ctx, n.leave = context.WithCancelCause(ctx)
	defer n.leave(nil)
	n.start(ctx)
	<-ctx.Done()
	n.group.Wait()
	n.encryption.stop()
	if err := context.Cause(ctx); errors.Is(err, segment.ErrLeft) || errors.Is(err, errMoved) {
		return err
	}
	return nil
}

// start starts the node's components.
func (n *Node) start(ctx context.Context) {
	if n.runtime != nil {
		n.group.Go(ctx, "containerd", n.runContainerd)
	}
	n.group.Go(ctx, "podnet", n.access.with(apiserver.NodeKubelet, n.follow))
	n.group.Go(ctx, "kubelet", n.access.with(apiserver.NodeKubelet, n.runKubelet))
	n.group.Go(ctx, "proxy", n.access.with(apiserver.NodeProxy, n.proxy.RunWith))
	if n.policies != nil {
		n.group.Go(ctx, "network-policy", n.access.with(apiserver.NodePolicies, n.policies.RunWith))
	}
	if n.settings.joined() {
		n.group.Go(ctx, "pki", n.renewIdentity)
	} else {
		n.group.Go(ctx, "dns", n.access.with(apiserver.NodeDNS, n.runDNS))
		n.group.Go(ctx, "local-volumes", n.access.with(apiserver.NodeVolumes, n.provisionVolumes))
	}
	if n.ingress != nil {
		n.group.Go(ctx, "ingress", n.access.with(apiserver.NodeIngress, n.ingress.RunWith))
	}
	if n.settings.several() {
		n.group.Go(ctx, "segment", n.keepSegment)
	}
	if !n.settings.further() { // which no other machine reaches, and whose addresses the component segment keeps
		n.group.Go(ctx, "addresses", n.runAddresses)
		n.group.Go(ctx, announcer, n.access.with(apiserver.NodeProxy, n.announceAddresses))
	}
	if n.network != nil {
		n.group.Go(ctx, "routes", n.access.with(apiserver.NodeProxy, n.keepRoutes))
	}
	if n.events != nil {
		n.group.Go(ctx, "events", n.access.with(apiserver.NodeKubelet, n.writeEvents))
	}
}

// runContainerd runs the bundled runtime.
func (n *Node) runContainerd(ctx context.Context) error {
	if n.network != nil {
		err := n.network.ReleaseFormerBoot()
		supervise.Report(ctx, "Addresses", err)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Addresses of pods from before the machine started stay in use")
		}
	}
	return n.runtime.Run(ctx)
}

// provisionVolumes makes the volumes of this node that claims ask for.
func (n *Node) provisionVolumes(ctx context.Context, provider client.Provider) error {
	own, err := provider.As(localvolume.User, "system:authenticated")
	if err != nil {
		return err
	}
	events, shutdown := controller.NewRecorder(ctx, own.Kubernetes, v1.EventSource{Component: localvolume.Name, Host: n.kubelet.Config.NodeName})
	defer shutdown()
	return localvolume.New(localvolume.Config{
		Client: own, Events: events, NodeName: n.kubelet.Config.NodeName, Dir: filepath.Join(n.settings.DataDir, "local-volumes"),
	}).Run(ctx)
}

// writeEvents writes Events about components that fail.
func (n *Node) writeEvents(ctx context.Context, provider client.Provider) error {
	own, err := n.own(provider)
	if err != nil {
		return err
	}
	return n.events.run(ctx, own.Kubernetes)
}

// own returns a client with the node's identity.
func (n *Node) own(provider client.Provider) (*client.Client, error) {
	return provider.As("system:node:"+n.kubelet.Config.NodeName, "system:nodes", "system:authenticated")
}

func (n *Node) runKubelet(ctx context.Context, provider client.Provider) error {
	if n.runtime != nil {
		supervise.Report(ctx, "Starting", errors.New("waiting for the component containerd"))
		select {
		case <-n.runtime.Ready():
			n.settings.Progress("containerd is up")
		case <-ctx.Done():
			return nil
		}
		supervise.Report(ctx, "Starting", nil)
	}
	n.begunOnce.Do(func() { close(n.begun) })
	var err error
	k := *n.kubelet
	if k.Config.GetCertificate, k.Config.ClientCAs, err = n.access.serving(k.Config.NodeName, k.Config.Addresses()); err != nil {
		return err
	}
	// Purge unmounts it.
	if err := kubelet.ShareRoot(k.Config.RootDirectory, files.OS{}, files.OS{}); err != nil {
		klog.FromContext(ctx).Error(err, "What pods mount below the kubelet's root directory (mountPropagation: Bidirectional) does not reach others")
	}
	return k.RunWith(ctx, provider)
}

// becomeReady closes ready once the kubelet has a runtime. Without it no kubelet of
// this process has reported anything: the report is of the same second, and of a
// former one. The report of this kubelet then changes nothing that is watched.
func (n *Node) becomeReady(ctx context.Context, node *v1.Node) {
	select {
	case <-n.begun:
	case <-ctx.Done():
		return
	}
	n.readyOnce.Do(func() {
		how := " is Ready"
		if n.lacksOtherNetwork(node) {
			how = " waits for the configuration of a CNI plugin"
		}
		n.settings.Progress("node " + node.Name + how)
		close(n.ready)
	})
}

// follow watches the node's object. It sets up the pod network once the pod
// CIDRs are assigned, and closes ready once this node's kubelet has reported
// that the node is Ready.
func (n *Node) follow(ctx context.Context, provider client.Provider) error {
	own, err := n.own(provider)
	if err != nil {
		return err
	}
	informer := own.Watch(v1.SchemeGroupVersion.WithResource("nodes"), "", fields.OneTermEqualSelector("metadata.name", n.kubelet.Config.NodeName))
	began := time.Now().Truncate(time.Second) // ignore reports of a former kubelet; the API has whole seconds
	podCIDRs, versions := make(chan []string, 1), make(chan *v1.Node, 1)
	var reported sync.Once
	started := false // used by take alone
	select {
	case <-n.ready: // this component was restarted
		started = true
	default:
		supervise.Report(ctx, "Starting", n.awaited(nil, began))
	}
	take := func(obj any) {
		nd := obj.(*v1.Node)
		if !started {
			why := n.awaited(nd, began)
			supervise.Report(ctx, "Starting", why)
			started = why == nil
		}
		putLatest(versions, nd)
		if len(nd.Spec.PodCIDRs) > 0 {
			putLatest(podCIDRs, nd.Spec.PodCIDRs)
		}
		if n.hasStarted(nd, began) {
			reported.Do(func() {
				supervise.Go(ctx, func() { n.becomeReady(ctx, nd) })
			})
		}
	}
	if _, err := client.Follow(ctx, informer, cache.ResourceEventHandlerFuncs{
		AddFunc: take, UpdateFunc: func(_, obj any) { take(obj) },
	}); err != nil {
		return err
	}
	if !n.settings.further() { // whose interfaces are the cluster's
		supervise.Go(ctx, func() { n.acceptRouters(ctx) })
	}
	if n.network == nil {
		n.leaveNetwork(ctx)
		return nil
	}
	supervise.Go(ctx, func() { n.pinAddresses(ctx) })
	if n.runtime != nil {
		supervise.Go(ctx, func() { n.releaseAddresses(ctx) })
	}
	supervise.Go(ctx, func() { n.followBehind(ctx, own.Kubernetes) })
	supervise.Go(ctx, func() { n.encryption.publish(ctx, own.Kubernetes, versions) })
	return n.keepNetwork(ctx, podCIDRs)
}

// putLatest puts a value into a channel that has room for one, in place of an older one.
// One goroutine at a time may do so.
func putLatest[T any](c chan T, value T) {
	select {
	case <-c:
	default:
	}
	c <- value
}

// awaited returns what the node's start waits for while its object is as given, nil
// if for nothing. The object is nil before the API server has shown it.
func (n *Node) awaited(node *v1.Node, began time.Time) error {
	name := n.kubelet.Config.NodeName
	switch {
	case node == nil:
		return fmt.Errorf("waiting for the API server, and for the kubelet to register node %s there", name)
	case n.hasStarted(node, began):
		return nil
	case len(node.Spec.PodCIDRs) == 0 && n.network != nil:
		return fmt.Errorf("waiting for the pod CIDRs of node %s, which the controller node-ipam-controller assigns", name)
	}
	waiting := fmt.Errorf("waiting for the kubelet to report that node %s is Ready", name)
	if c := nodestatus.Condition(node, v1.NodeReady); c != nil && c.Status != v1.ConditionTrue {
		return fmt.Errorf("%w; it reports %s: %s", waiting, c.Reason, c.Message)
	}
	return waiting
}
