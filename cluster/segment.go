package cluster

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/podnet"
	"github.com/coracle-io/coracle/internal/segment"
	"github.com/coracle-io/coracle/internal/simnode"
	"github.com/coracle-io/coracle/internal/supervise"
	"github.com/coracle-io/coracle/internal/wireguard"
)

// keepSegment restores this node's part of the segment of several nodes on this
// machine, until ctx ends: on the first node the bridge, on a further one the
// addresses of its interface. A further node without its interface ends.
func (n *Node) keepSegment(ctx context.Context) error {
	check := time.NewTicker(networkPeriod)
	defer check.Stop()
	for {
		var err error
		if n.settings.further() {
			err = n.settings.member().Check()
		} else {
			err = n.settings.segment().Keep(slices.Max(slices.Collect(maps.Keys(n.settings.present()))))
		}
		if errors.Is(err, segment.ErrLeft) {
			n.leave(err)
			return nil
		}
		if err == nil {
			n.joined.reach()
		} else {
			klog.FromContext(ctx).Error(err, "Setting up the segment of the nodes failed, will try again", "in", networkPeriod)
		}
		supervise.Report(ctx, "Segment", err)
		select {
		case <-ctx.Done():
			return nil
		case <-check.C:
		}
	}
}

// answering returns the addresses at which the DNS server answers: its own ones and, of
// the families that they lack and the cluster's DNS has, those of the kubelet, which an
// argument may have set, as far as they are here.
func answering(own, kubelets, announced []string, here []netip.Addr) []string {
	has := func(list []string, ipv4 bool) bool {
		return slices.ContainsFunc(parseAddresses(list), func(a netip.Addr) bool { return a.Is4() == ipv4 })
	}
	addresses := slices.Clone(own)
	for _, a := range parseAddresses(kubelets) {
		if !has(addresses, a.Is4()) && has(announced, a.Is4()) && slices.Contains(here, a) {
			addresses = append(addresses, a.String())
		}
	}
	return addresses
}

// reachable returns the node's addresses without those on the segment, which no other
// machine reaches.
func (n *Node) reachable() []string {
	if !n.settings.several() {
		return n.ips()
	}
	inside := n.settings.segment().Addresses(n.settings.Node.Number)
	return slices.DeleteFunc(slices.Clone(n.ips()), func(text string) bool {
		a, err := netip.ParseAddr(text)
		return err == nil && slices.Contains(inside, a)
	})
}

// machineAddresses returns the addresses of this machine, none if they cannot be listed.
func machineAddresses() []netip.Addr {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var out []netip.Addr
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Addr().Unmap())
		}
	}
	return out
}

// shareResolvers lets further nodes ask the first one for names that only the
// machine's resolvers know.
func (n *Node) shareResolvers() {
	if !n.settings.several() {
		return
	}
	gateway := n.settings.segment().Gateway().String()
	switch {
	case n.settings.further():
		n.dns.Machine = net.JoinHostPort(gateway, strconv.Itoa(n.dns.Port))
	case !slices.Contains(n.dns.Addresses, gateway):
		n.dns.Unannounced = []string{gateway}
	}
}

// runDNS runs the DNS server once its addresses are there.
func (n *Node) runDNS(ctx context.Context, provider client.Provider) error {
	if n.settings.several() {
		select {
		case <-n.joined.done:
		case <-ctx.Done():
			return nil
		}
	}
	return n.dns.RunWith(ctx, provider)
}

// peers are the nodes of the cluster besides one.
type peers struct {
	mu       sync.Mutex     // guards those below
	own      string         // the name of that one
	podCIDRs []netip.Prefix // the latest of the node itself, also without its object
	others   map[string]podnet.Peer
	changed  chan struct{} // has a value when they have changed
}

func newPeers(own string) *peers {
	return &peers{own: own, others: map[string]podnet.Peer{}, changed: make(chan struct{}, 1)}
}

// begin forgets the other nodes, and takes the name of the node itself, which an
// argument of its kubelet may have changed.
func (p *peers) begin(own string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.own = own
	clear(p.others)
}

// has reports whether one of the other nodes has an address.
func (p *peers) has(address netip.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, peer := range p.others {
		if slices.Contains(peer.Addresses, address) {
			return true
		}
	}
	return false
}

// elsewhere reports whether there is another node, with an address, than those that are
// here.
func (p *peers) elsewhere(here func(name string) bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, peer := range p.others {
		if len(peer.Addresses) > 0 && !here(name) {
			return true
		}
	}
	return false
}

// set adds or replaces a node.
func (p *peers) set(node *v1.Node) {
	peer := podnet.Peer{
		Name: node.Name, PodCIDRs: nodeCIDRs(node), Addresses: nodeAddresses(node), Created: node.CreationTimestamp.UnixNano(),
		WireGuard: wireguard.ParseIdentity(node.Annotations[wireguard.Annotation]),
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if node.Name == p.own {
		if len(peer.PodCIDRs) > 0 && !slices.Equal(p.podCIDRs, peer.PodCIDRs) {
			p.podCIDRs = peer.PodCIDRs
			p.signal()
		}
		return
	}
	if reflect.DeepEqual(p.others[node.Name], peer) { // most changes are heartbeats
		return
	}
	p.others[node.Name] = peer
	p.signal()
}

// remove removes a node.
func (p *peers) remove(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.others, name)
	p.signal()
}

func (p *peers) signal() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// now returns the pod CIDRs of the node itself, none if they have never been
// known, and the other nodes.
func (p *peers) now() ([]netip.Prefix, []podnet.Peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.podCIDRs, slices.Collect(maps.Values(p.others))
}

// nodeCIDRs returns the pod CIDRs of a node.
func nodeCIDRs(node *v1.Node) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range node.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(s); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}

// nodeAddresses returns the internal addresses of a node. A simulated node has none
// where something listens.
func nodeAddresses(node *v1.Node) []netip.Addr {
	if _, simulated := node.Labels[simnode.Label]; simulated {
		return nil
	}
	var list []string
	for _, a := range node.Status.Addresses {
		if a.Type == v1.NodeInternalIP {
			list = append(list, a.Address)
		}
	}
	return parseAddresses(list)
}

// parseAddresses returns the addresses in a list, without malformed ones, those of an
// interface alone, and 0.0.0.0 and ::, with which --node-ip asks for any.
func parseAddresses(list []string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" && !a.IsUnspecified() {
			out = append(out, a.Unmap())
		}
	}
	return out
}

// reduceNode returns what of a node its peers need: many nodes then take little memory.
func reduceNode(obj any) (any, error) {
	node, ok := obj.(*v1.Node)
	if !ok {
		return obj, nil
	}
	reduced := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, CreationTimestamp: node.CreationTimestamp, Labels: node.Labels},
		Spec:       v1.NodeSpec{PodCIDRs: node.Spec.PodCIDRs},
		Status:     v1.NodeStatus{Addresses: node.Status.Addresses},
	}
	if identity, published := node.Annotations[wireguard.Annotation]; published {
		reduced.Annotations = map[string]string{wireguard.Annotation: identity}
	}
	return reduced, nil
}

// keepRoutes keeps this node's routes to the pods of the others in step with their
// objects, until ctx ends. It watches them as the proxy, which may read all nodes.
func (n *Node) keepRoutes(ctx context.Context, provider client.Provider) error {
	own, err := provider.As("system:kube-proxy", "system:authenticated")
	if err != nil {
		return err
	}
	encryption, err := n.encryption.open(ctx)
	if err != nil {
		return err // it is tried again; until then, no pods of other machines are reached
	}
	nodes := n.peers
	nodes.begin(n.kubelet.Config.NodeName) // without what a former instance of this component knew
	informer := own.WatchReduced(v1.SchemeGroupVersion.WithResource("nodes"), "", fields.Everything(), reduceNode)
	synced, err := client.Follow(ctx, informer, client.SetHandler(nodes.set, func(node *v1.Node) { nodes.remove(node.Name) }))
	if err != nil {
		return err
	}
	waits := []<-chan struct{}{synced.Done()} // without all nodes, routes of running pods would be removed
	if n.settings.several() {
		waits = append(waits, n.joined.done)
	}
	for _, ready := range waits {
		select {
		case <-ctx.Done():
			return nil
		case <-ready:
		}
	}
	supervise.Go(ctx, func() {
		n.addresses.List.Each(ctx, func() {
			if encryption != nil {
				encryption.Moved()
			}
			nodes.signal()
		})
	})
	n.applyRoutes(ctx, nodes, through(encryption))
	return nil
}

// routePause is the least time between two plans: many nodes may change at once.
const routePause = 200 * time.Millisecond

// planner is applyPlan.
type planner func(routes podnet.Routes, podCIDRs []netip.Prefix, others []podnet.Peer, quiet bool) (plan podnet.Plan, changed bool, err error)

// through returns applyPlan for a node whose tunnel encrypts, unless encryption is nil.
func through(encryption *wireguard.Device) planner {
	return func(routes podnet.Routes, podCIDRs []netip.Prefix, others []podnet.Peer, quiet bool) (podnet.Plan, bool, error) {
		routes.Encryption = encryption
		return applyPlan(routes, podCIDRs, others, quiet)
	}
}

// applyRoutes applies the plan for the nodes when they change, and when routes
// are missing, until ctx ends. It waits for this node's pod CIDRs, which no other
// node may take. While no node needs a route, it does not look for missing ones.
func (n *Node) applyRoutes(ctx context.Context, nodes *peers, apply planner) {
	log := klog.FromContext(ctx)
	check := time.NewTicker(networkPeriod)
	defer check.Stop()
	var refusedBefore []string
	quiet, again := false, false // no route is wanted, and none is there; no node has changed
	for {
		if podCIDRs, others := nodes.now(); len(podCIDRs) > 0 && !(quiet && again) {
			plan, changed, err := apply(n.routes(), podCIDRs, others, quiet)
			n.routed.reach()
			supervise.Report(ctx, "Routes", err)
			switch {
			case err != nil:
				log.Error(err, "Routing the pods of other nodes failed, will try again", "in", networkPeriod)
			case changed:
				log.Info("Changed the routes to the pods of other nodes", "routes", plan.Routes)
			}
			if len(plan.Refused) > 0 && !slices.Equal(plan.Refused, refusedBefore) {
				log.Info("Pods of some ranges get no route", "reasons", plan.Refused)
			}
			refusedBefore, quiet = plan.Refused, err == nil && len(plan.Routes) == 0
			if !supervise.Pause(ctx, routePause) {
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-nodes.changed:
			again = false
		case <-check.C:
			again = true
		}
	}
}

// applyPlan plans the routes to the pods of other nodes and applies the plan to the
// kernel, unless it is quiet, so that there is nothing to remove, and remains so. It
// reports whether that changed anything.
func applyPlan(routes podnet.Routes, podCIDRs []netip.Prefix, others []podnet.Peer, quiet bool) (plan podnet.Plan, changed bool, err error) {
	interfaces, err := podnet.Interfaces()
	if err != nil {
		return plan, false, err
	}
	plan = routes.Plan(podCIDRs, others, interfaces)
	if quiet && len(plan.Routes) == 0 {
		return plan, false, nil
	}
	changed, err = routes.Apply(plan)
	return plan, changed, err
}

// routes returns how this node routes to the nodes that there are now.
func (n *Node) routes() podnet.Routes {
	o := n.settings
	r := podnet.Routes{
		Name: o.own(), NodeName: n.kubelet.Config.NodeName, Own: parseAddresses(n.ips()),
		ClusterCIDRs: prefixes(o.ClusterCIDR), NodeMaskSizeIPv4: n.nodeMaskSizes[0], NodeMaskSizeIPv6: n.nodeMaskSizes[1],
	}
	if behind := n.behind.Load(); behind != nil {
		r.Behind, r.Front = behind.ranges(), behind.Node
	}
	if !o.several() {
		return r
	}
	r.Link, r.Addresses = o.segment().Link(), map[string][]netip.Addr{}
	if o.further() {
		r.Link, r.Gateways = segment.Link, o.segment().Addresses(1)
	}
	for number, name := range o.present() {
		if addresses := o.segment().Addresses(number); len(addresses) > 0 {
			r.Addresses[name] = addresses
		}
	}
	return r
}
