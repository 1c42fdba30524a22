// Package l2announce makes the machines of a link send to this node what is for the
// addresses of Services that are from pools: the node answers ARP requests and
// neighbour solicitations for them, as their owner would (RFC 826, RFC 4861).
//
//	pools, Services, endpoints, nodes ─► ranks: the order of nodes of each address
//	                                       │
//	interfaces ─► responder ─► claim of each address on each interface: holder or standby
//	                               │
//	  link ◄── answers, announcements, questions of standbys
//
// The first node in the order of an address answers. The others ask for it twice a
// second, and take it when nobody has answered for a second or little more. The
// addresses are no addresses of the node: its proxy translates what arrives for their
// ports, and nothing else answers there.
package l2announce

import (
	"context"
	"fmt"
	"net/netip"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/addresspool"
	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Config configures an Announcer.
type Config struct {
	Client   *client.Client
	NodeName string
	// Own are the addresses by which other machines reach this node.
	Own []netip.Addr
	// Taken are ranges with which no pool may overlap: those of pods and Services.
	Taken []netip.Prefix
	// Events records which addresses this node begins to answer for.
	Events record.EventRecorder
}

// Announcer announces addresses on one node.
type Announcer struct {
	config Config
	state  *state
}

// New returns an announcer that does not run yet.
func New(config Config) *Announcer {
	return &Announcer{config: config, state: newState(config.NodeName)}
}

// Run announces until ctx ends. Without pools, it watches their ConfigMap and nothing
// else.
func (a *Announcer) Run(ctx context.Context) error { return supervise.Run(ctx, a.run) }

func (a *Announcer) run(ctx context.Context) error {
	if err := a.follow(ctx); err != nil {
		return err
	}
	r := &responder{wanted: a.state.wanted, changed: a.state.changed, own: a.config.Own, took: a.took, ceded: a.ceded}
	r.run(ctx)
	return nil
}

// follow keeps the state at what the API says, until ctx ends.
func (a *Announcer) follow(ctx context.Context) error {
	set := func(c *v1.ConfigMap) {
		pools, errs := addresspool.Parse(c.Data, a.config.Taken...)
		if len(errs) > 0 {
			klog.FromContext(ctx).Error(errs.ToAggregate(), "The address pools have errors: they stay as they were", "configMap", klog.KObj(c))
			return
		}
		a.state.setPools(pools)
	}
	named := fields.OneTermEqualSelector(metav1.ObjectNameField, addresspool.Name)
	informer := a.config.Client.Watch(v1.SchemeGroupVersion.WithResource("configmaps"), addresspool.Namespace, named)
	handler := client.SetHandler(set, func(*v1.ConfigMap) { a.state.setPools(nil) })
	if _, err := client.Follow(ctx, informer, handler); err != nil {
		return fmt.Errorf("watching the address pools: %w", err)
	}
	supervise.Go(ctx, func() { a.watchIfConfigured(ctx) })
	return nil
}

// watchIfConfigured watches Services, endpoints and nodes while there are pools, until
// ctx ends.
func (a *Announcer) watchIfConfigured(ctx context.Context) {
	for ctx.Err() == nil {
		if a.state.hasPools() {
			err := supervise.Run(ctx, a.watch)
			a.state.forget()
			if err != nil {
				supervise.Fail(ctx, err)
				return
			}
			continue
		}
		select {
		case <-ctx.Done():
		case <-a.state.configured:
		}
	}
}

// watch watches until there are no pools, or ctx ends.
func (a *Announcer) watch(ctx context.Context) error {
	reduced := func(of schema.GroupVersion, resource string, selector fields.Selector) cache.SharedIndexInformer {
		return a.config.Client.WatchReduced(of.WithResource(resource), "", selector, reduce)
	}
	s := a.state
	balanced := fields.OneTermEqualSelector("spec.type", string(v1.ServiceTypeLoadBalancer))
	var synced []cache.DoneChecker
	for _, source := range []struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{
		{reduced(v1.SchemeGroupVersion, "services", balanced), client.SetHandler(s.setService, s.deleteService)},
		{reduced(v1.SchemeGroupVersion, "nodes", fields.Everything()), client.SetHandler(s.setNode, s.deleteNode)},
		{reduced(discoveryv1.SchemeGroupVersion, "endpointslices", fields.Everything()), client.Handler(s.setSlice, s.updateSlice, s.deleteSlice)},
	} {
		done, err := client.Follow(ctx, source.informer, source.handler)
		if err != nil {
			return fmt.Errorf("watching for announcements: %w", err)
		}
		synced = append(synced, done)
	}
	if !cache.WaitFor(ctx, "", synced...) {
		return nil
	}
	s.setComplete()
	for s.hasPools() {
		select {
		case <-ctx.Done():
			return nil
		case <-s.configured:
		}
	}
	return nil
}

// took records that this node begins to answer for an address.
func (a *Announcer) took(address netip.Addr) {
	for _, service := range a.state.with(address) {
		a.config.Events.Eventf(service, v1.EventTypeNormal, "AddressAnnounced", "Node %s answers for %s", a.config.NodeName, address)
	}
}

// ceded records that this node leaves an address to a machine that insists on it: one
// with a fixed address, of another cluster with the same pool, or a node that does not
// hear from the API server.
func (a *Announcer) ceded(address netip.Addr, to hardware) {
	for _, service := range a.state.with(address) {
		a.config.Events.Eventf(service, v1.EventTypeWarning, "AddressConflict", "Machine %s claims %s, too: node %s leaves it", to, address, a.config.NodeName)
	}
}

// reduce returns what this package uses of an object, which is a copy.
func reduce(obj any) (any, error) {
	meta := func(o *metav1.ObjectMeta) metav1.ObjectMeta {
		out := client.Identity(o)
		out.DeletionTimestamp = o.DeletionTimestamp
		return out
	}
	switch o := obj.(type) {
	case *v1.Service:
		return &v1.Service{
			ObjectMeta: meta(&o.ObjectMeta),
			Spec:       v1.ServiceSpec{Type: o.Spec.Type, LoadBalancerClass: o.Spec.LoadBalancerClass, ExternalTrafficPolicy: o.Spec.ExternalTrafficPolicy},
			Status:     v1.ServiceStatus{LoadBalancer: o.Status.LoadBalancer},
		}, nil
	case *v1.Node:
		out := &v1.Node{ObjectMeta: meta(&o.ObjectMeta)}
		if _, excluded := o.Labels[v1.LabelNodeExcludeBalancers]; excluded {
			out.Labels = map[string]string{v1.LabelNodeExcludeBalancers: ""}
		}
		out.Status.Addresses = o.Status.Addresses
		out.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionFalse}}
		if isReady(o) {
			out.Status.Conditions[0].Status = v1.ConditionTrue
		}
		return out, nil
	case *discoveryv1.EndpointSlice:
		out := &discoveryv1.EndpointSlice{ObjectMeta: meta(&o.ObjectMeta)}
		out.Labels = map[string]string{discoveryv1.LabelServiceName: o.Labels[discoveryv1.LabelServiceName]}
		for _, node := range readyNodes(o) {
			out.Endpoints = append(out.Endpoints, discoveryv1.Endpoint{NodeName: new(node)})
		}
		return out, nil
	}
	return obj, nil
}
