// Package servicelb is the service controller for clusters without a cloud
// provider. A Service of type LoadBalancer gets the addresses of the nodes or, if
// there are pools of addresses (internal/addresspool), one of a pool for each family.
// The proxies of the nodes make it answer there, as at any address in
// status.loadBalancer, and apply source ranges and the external traffic policy. The
// nodes announce the addresses of pools (internal/l2announce).
//
//	Services, nodes, host ports ─► plan ─────┐
//	                                         ├─► status.loadBalancer.ingress ─► proxies, announcers
//	Services, pools ─────────────► allocate ─┘
//
// The status is the record of which Service has which address of a pool.
package servicelb

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/addresspool"
	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/pods"
	"github.com/coracle-io/coracle/internal/nodestatus"
	"github.com/coracle-io/coracle/internal/order"
	"github.com/coracle-io/coracle/internal/podquery"
)

// Class is the load balancer class of Services that want this controller. It also
// serves those without a class.
const Class = addresspool.Class

// Annotation has the addresses that a Service got from this controller. By it the
// controller recognises them after the type of the Service has changed.
const Annotation = "coracle.io/servicelb-addresses"

// Options are the options of the controller. They have no flags: a controller
// manager that runs alone leaves load balancers to a cloud provider, as upstream's.
type Options struct {
	// NodeAddresses makes the controller work. Otherwise it does nothing.
	NodeAddresses bool
	// Reserved are the ports of the nodes on which the cluster itself serves.
	Reserved []int
	// Ranges are those of pods and Services, with which no pool may overlap.
	Ranges []netip.Prefix
}

// Descriptor describes the controller.
func Descriptor(o *Options) controller.Descriptor {
	return controller.Descriptor{
		Name:           "service-lb-controller",
		Aliases:        []string{"service"},
		ServiceAccount: "service-controller",
		EventSource:    "service-controller",
		New:            func(env *controller.Env) (controller.Controller, error) { return newController(env, o) },
	}
}

// byHostPorts is the name of the index of pods that have host ports, by their node.
const byHostPorts = "nodeOfHostPorts"

type balancer struct {
	env       *controller.Env
	kube      kubernetes.Interface
	services  corelisters.ServiceLister
	nodes     corelisters.NodeLister
	pods      cache.SharedIndexInformer
	endpoints cache.SharedIndexInformer
	options   *Options
	pools     *pools
	// queue has one key: which Service gets a port depends on all of them.
	queue *controller.Queue[struct{}]
	// reported holds what events have said of each Service, and written the addresses of
	// pools that the informer may not have yet. Only the worker uses them.
	reported map[types.UID]message
	written  map[types.UID]written
}

// message is what events have said of a Service.
type message struct {
	latest string
	kept   bool // that it keeps the addresses of nodes
}

// written are addresses that were written to a version of a Service.
type written struct {
	to        string // the resource version
	addresses []netip.Addr
	done      bool // otherwise it is not known whether the API server has them
}

func newController(env *controller.Env, o *Options) (controller.Controller, error) {
	if !o.NodeAddresses {
		return controller.Func(func(ctx context.Context) error {
			klog.FromContext(ctx).Info("Nothing to do: this controller runs in an external cloud controller manager")
			<-ctx.Done()
			return nil
		}), nil
	}
	core := env.Client.Informers.Core().V1()
	b := &balancer{
		env: env, kube: env.Client.Kubernetes, services: core.Services().Lister(), nodes: core.Nodes().Lister(),
		pods: core.Pods().Informer(), endpoints: env.Client.Informers.Discovery().V1().EndpointSlices().Informer(),
		options: o, pools: &pools{kube: env.Client.Kubernetes, ranges: o.Ranges, events: env.Events},
		reported: map[types.UID]message{}, written: map[types.UID]written{},
	}
	b.pools.stale.Store(true)
	b.queue = controller.NewQueue(env.Queues, "service", func(ctx context.Context, _ struct{}) error { return b.sync(ctx) })
	return b, errors.Join(env.Index(b.pods, byHostPorts, nodeOfHostPorts), env.Index(b.endpoints, pods.ByService, pods.SliceKeys))
}

// nodeOfHostPorts returns the node on which a pod has host ports. The pod may be
// nil.
func nodeOfHostPorts(o any) ([]string, error) {
	pod, ok := o.(*v1.Pod)
	if !ok || pod == nil || pod.Spec.NodeName == "" || podquery.IsFinished(pod) || len(hostPortsOf(pod)) == 0 {
		return nil, nil
	}
	return []string{pod.Spec.NodeName}, nil
}

// Run implements controller.Controller.
func (b *balancer) Run(ctx context.Context) error {
	core := b.env.Client.Informers.Core().V1()
	return controller.Serve(ctx, []controller.Source{
		controller.On(core.Services().Informer(), func(old, new *v1.Service) {
			if balanced(old) || balanced(new) || !slices.Equal(nodePortsOf(old), nodePortsOf(new)) || !slices.Equal(ingressOf(old), ingressOf(new)) {
				b.queue.Add(struct{}{})
			}
		}),
		controller.On(core.ConfigMaps().Informer(), func(old, new *v1.ConfigMap) {
			if addresspool.IsConfig(old) || addresspool.IsConfig(new) {
				b.pools.stale.Store(true)
				b.queue.Add(struct{}{})
			}
		}),
		controller.On(core.Nodes().Informer(), func(old, new *v1.Node) {
			if changed(old, new) {
				b.queue.Add(struct{}{})
			}
		}),
		controller.On(b.pods, func(old, new *v1.Pod) {
			before, _ := nodeOfHostPorts(old)
			after, _ := nodeOfHostPorts(new)
			if len(before) != len(after) {
				b.queue.Add(struct{}{})
			}
		}),
		controller.On(b.endpoints, func(old, new *discoveryv1.EndpointSlice) {
			if b.isLocal(old) || b.isLocal(new) || isAPIServers(old) || isAPIServers(new) {
				b.queue.Add(struct{}{})
			}
		}),
	}, b.queue.Workers(1))
}

// ingressOf returns the addresses of a Service, which may be nil.
func ingressOf(s *v1.Service) []netip.Addr {
	if s == nil {
		return nil
	}
	return addresspool.Ingress(s)
}

// balanced reports whether this controller gives addresses to a Service, which may
// be nil.
func balanced(s *v1.Service) bool {
	return addresspool.IsBalanced(s) && s.DeletionTimestamp == nil
}

// abandoned reports whether a Service was of type LoadBalancer and still has
// Annotation, with its addresses or without any, or NodesAnnotation, or has addresses
// that are all those of nodes. The API server takes the addresses away with the type.
func abandoned(s *v1.Service, nodes []*v1.Node) bool {
	if s.Spec.Type == v1.ServiceTypeLoadBalancer {
		return false
	}
	var addresses []string
	for _, ingress := range s.Status.LoadBalancer.Ingress {
		addresses = append(addresses, ingress.IP)
	}
	given := s.Annotations[Annotation]
	if len(addresses) == 0 || given != "" && given == strings.Join(addresses, separator) {
		return given != "" || s.Annotations[NodesAnnotation] != ""
	}
	return !slices.ContainsFunc(s.Status.LoadBalancer.Ingress, func(ingress v1.LoadBalancerIngress) bool {
		return !slices.ContainsFunc(nodes, func(n *v1.Node) bool {
			return slices.ContainsFunc(external(n), func(a netip.Addr) bool { return a.String() == ingress.IP })
		})
	})
}

// isLocal reports whether a slice, which may be nil, has the endpoints of a
// Service that only nodes with endpoints serve.
func (b *balancer) isLocal(slice *discoveryv1.EndpointSlice) bool {
	if slice == nil {
		return false
	}
	s, err := b.services.Services(slice.Namespace).Get(slice.Labels[discoveryv1.LabelServiceName])
	return err == nil && balanced(s) && addresspool.IsLocal(s)
}

// isAPIServers reports whether a slice, which may be nil, has the addresses of API
// servers.
func isAPIServers(slice *discoveryv1.EndpointSlice) bool {
	return slice != nil && slice.Namespace == metav1.NamespaceDefault && slice.Labels[discoveryv1.LabelServiceName] == apiServers
}

// apiServers is the Service in namespace default whose endpoints are the API servers.
const apiServers = "kubernetes"

// changed reports whether the addresses of Services may change with a node.
func changed(old, new *v1.Node) bool {
	if old == nil || new == nil {
		return true
	}
	none := func(string) map[port]bool { return nil }
	return !maps.Equal(addressesOf([]*v1.Node{old}), addressesOf([]*v1.Node{new})) ||
		!reflect.DeepEqual(usable([]*v1.Node{old}, none), usable([]*v1.Node{new}, none)) || nodestatus.Ready(old) != nodestatus.Ready(new)
}

func (b *balancer) sync(ctx context.Context) error {
	nodes, err := b.nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	all, err := b.services.List(labels.Everything())
	if err != nil {
		return err
	}
	pools, known, err := b.pools.read(ctx, slices.ContainsFunc(all, b.isNew))
	if err != nil || !known {
		return err
	}
	var onNodes, ofPools []service
	var errs []error
	nodePorts, others := map[port]*v1.Service{}, addressesOf(nodes)
	for _, a := range b.apiServers() {
		others[a] = cmp.Or(others[a], "that of an API server")
	}
	for _, s := range all {
		for _, p := range nodePortsOf(s) {
			if owner := nodePorts[p]; owner == nil || order.ByAge(s, owner) < 0 {
				nodePorts[p] = s
			}
		}
		held, kept := b.held(s), false
		if balanced(s) {
			var yes bool
			if yes, kept = pooled(s, held, pools, others); yes {
				ofPools = append(ofPools, service{Service: s, held: held})
				continue
			}
		}
		for _, a := range held {
			others[a] = cmp.Or(others[a], "that of a Service without pools")
		}
		switch {
		case balanced(s):
			onNodes = append(onNodes, service{Service: s, local: b.local(s), kept: kept})
		case abandoned(s, nodes):
			errs = append(errs, b.release(ctx, s))
		}
	}
	assignments := plan(onNodes, usable(nodes, b.hostPorts), nodePorts, b.options.Reserved)
	maps.Copy(assignments, allocate(ofPools, pools, others))
	return errors.Join(append(errs, b.apply(ctx, slices.Concat(onNodes, ofPools), assignments))...)
}

// isNew reports whether a Service has no addresses, and never had any from this process.
// It may have been created right after the pools, of which the informer may not have
// heard; with the addresses of nodes, it would keep them.
func (b *balancer) isNew(s *v1.Service) bool {
	_, known := b.reported[s.UID]
	return !known && balanced(s) && len(s.Status.LoadBalancer.Ingress) == 0
}

// apply writes the addresses of all Services, and tells them.
func (b *balancer) apply(ctx context.Context, services []service, assignments map[controller.Key]assignment) error {
	var errs []error
	alive, unseen := map[types.UID]message{}, map[types.UID]written{}
	for _, s := range services {
		a := assignments[cache.MetaObjectToName(s)]
		err := b.assign(ctx, s.Service, a)
		if w, ok := b.written[s.UID]; ok && w.to == s.ResourceVersion {
			unseen[s.UID] = w
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("Service %s/%s: %w", s.Namespace, s.Name, err))
			continue
		}
		alive[s.UID] = b.report(s.Service, a)
	}
	b.reported, b.written = alive, unseen
	return errors.Join(errs...)
}

// addressesOf returns the addresses of nodes, which no Service gets from a pool.
func addressesOf(nodes []*v1.Node) map[netip.Addr]string {
	all := map[netip.Addr]string{}
	for _, n := range nodes {
		for _, address := range n.Status.Addresses {
			if a, err := netip.ParseAddr(address.Address); err == nil {
				all[a.Unmap()] = ofNode
			}
		}
	}
	return all
}

// apiServers returns the addresses of API servers, which may be on machines that are no
// nodes.
func (b *balancer) apiServers() (addresses []netip.Addr) {
	list, err := b.endpoints.GetIndexer().ByIndex(pods.ByService, metav1.NamespaceDefault+"/"+apiServers)
	if err != nil {
		return nil
	}
	for _, o := range list {
		for _, e := range o.(*discoveryv1.EndpointSlice).Endpoints {
			for _, text := range e.Addresses {
				if a, err := netip.ParseAddr(text); err == nil {
					addresses = append(addresses, a)
				}
			}
		}
	}
	return addresses
}

// held returns the addresses that a Service has. What the informer has not seen yet
// is first.
func (b *balancer) held(s *v1.Service) []netip.Addr {
	list := addresspool.Ingress(s)
	switch w, ok := b.written[s.UID]; {
	case !ok || w.to != s.ResourceVersion:
		return list
	case w.done:
		return w.addresses
	default:
		return append(slices.Clone(w.addresses), slices.DeleteFunc(list, func(a netip.Addr) bool { return slices.Contains(w.addresses, a) })...)
	}
}

// hostPorts returns the ports that pods of a node have.
func (b *balancer) hostPorts(node string) map[port]bool {
	holders, err := b.pods.GetIndexer().ByIndex(byHostPorts, node)
	if err != nil {
		return nil
	}
	ports := map[port]bool{}
	for _, o := range holders {
		for _, p := range hostPortsOf(o.(*v1.Pod)) {
			ports[p] = true
		}
	}
	return ports
}

// local returns the nodes with a ready endpoint of a Service, or nil if all nodes
// serve it.
func (b *balancer) local(s *v1.Service) map[string]bool {
	if !addresspool.IsLocal(s) {
		return nil
	}
	nodes := map[string]bool{}
	list, err := b.endpoints.GetIndexer().ByIndex(pods.ByService, s.Namespace+"/"+s.Name)
	if err != nil {
		return nodes
	}
	for _, o := range list {
		for _, e := range o.(*discoveryv1.EndpointSlice).Endpoints {
			if e.NodeName != nil && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
				nodes[*e.NodeName] = true
			}
		}
	}
	return nodes
}

// assign writes the addresses of a Service if it has others.
func (b *balancer) assign(ctx context.Context, s *v1.Service, a assignment) error {
	want, addresses, mark := a.ingress(), a.String(), ""
	if a.kept {
		mark = string(s.UID)
	}
	if equality.Semantic.DeepEqual(s.Status.LoadBalancer.Ingress, want) && s.Annotations[Annotation] == addresses && s.Annotations[NodesAnnotation] == mark {
		return nil
	}
	if w := b.written[s.UID]; w.done && w.to == s.ResourceVersion && slices.Equal(w.addresses, a.addresses) {
		return nil
	}
	annotations := map[string]any{Annotation: addresses, NodesAnnotation: mark}
	for name, value := range annotations {
		if value == "" {
			annotations[name] = nil // which removes it
		}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": s.UID, "resourceVersion": s.ResourceVersion, "annotations": annotations},
		"status":   map[string]any{"loadBalancer": map[string]any{"ingress": want}},
	})
	if err != nil {
		return err
	}
	_, err = b.kube.CoreV1().Services(s.Namespace).Patch(ctx, s.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if a.pooled {
		b.written[s.UID] = written{s.ResourceVersion, a.addresses, err == nil}
	}
	return controller.IgnoreNotFound(err)
}

// release takes its addresses from a Service.
func (b *balancer) release(ctx context.Context, s *v1.Service) error {
	err := b.assign(ctx, s, assignment{})
	if err == nil {
		b.env.Events.Event(s, v1.EventTypeNormal, "DeletedLoadBalancer", "Deleted load balancer")
	}
	return err
}

// report records an event if the latest one of a Service said something else, and one
// that it keeps its addresses. It returns what events have said then.
func (b *balancer) report(s *v1.Service, a assignment) message {
	if a.pooled {
		return message{latest: b.reportPooled(s, a)}
	}
	text := a.String()
	if a.problem != "" {
		text = a.problem
	}
	before, known := b.reported[s.UID]
	if a.kept && !before.kept && !isMarked(s) { // the informer may not show the mark yet
		b.env.Events.Eventf(s, v1.EventTypeNormal, "AddressesKept", "Keeps the addresses of nodes: with the annotation %s, it gets those of an address pool", PoolAnnotation)
	}
	switch {
	case before.latest == text:
	case a.problem != "":
		b.env.Events.Eventf(s, v1.EventTypeWarning, "SyncLoadBalancerFailed", "Error syncing load balancer: failed to ensure load balancer: %s", a.problem)
	case known || len(s.Status.LoadBalancer.Ingress) == 0: // not after a restart
		b.env.Events.Event(s, v1.EventTypeNormal, "EnsuredLoadBalancer", "Ensured load balancer")
	}
	return message{text, a.kept}
}

// reportPooled is report for a Service of pools.
func (b *balancer) reportPooled(s *v1.Service, a assignment) string {
	text := a.String() + "; " + a.problem
	if b.reported[s.UID].latest == text {
		return text
	}
	for _, why := range a.released {
		b.env.Events.Eventf(s, v1.EventTypeWarning, "IPReleased", "The Service loses an address: %s", why)
	}
	if a.problem != "" {
		b.env.Events.Eventf(s, v1.EventTypeWarning, "AllocationFailed", "Cannot allocate an address: %s", a.problem)
	}
	if len(a.addresses) > 0 && !equality.Semantic.DeepEqual(s.Status.LoadBalancer.Ingress, a.ingress()) {
		b.env.Events.Eventf(s, v1.EventTypeNormal, "IPAllocated", "Allocated %s", a)
	}
	return text
}
