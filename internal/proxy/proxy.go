// Package proxy is the Service proxy of a node, as upstream's kube-proxy. It
// computes Rules, a value, from Services, EndpointSlices and the node's pods. A
// Backend applies each new value to the kernel.
//
//	informers ──changed Service──► state ──Rules──► permitter ──Rules──► Backend (nftables, iptables, ipvs, userspace)
//	                                 │                  │                   one transaction
//	  only what changed is computed again       Ports: what others          of the difference
//	                                            have on this node
//
// Each Rules shares with the former one what has not changed (package persistent), and
// each step follows the difference (Compare), so that a change of one Service costs the
// same among any number of them. A check of the kernel (Backend.Intact) looks at all.
package proxy

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/applyloop"
	"github.com/coracle-io/coracle/internal/client"
	registry "github.com/coracle-io/coracle/internal/metrics"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Backend applies Rules to the kernel: package nftables in one transaction, package
// iptables in one for each family and table. Packages ipvs and userspace have the
// endpoints behind the table of nftables. One goroutine uses it.
type Backend interface {
	// Apply changes the kernel from the Rules of the last Apply to rules. After an
	// error, the kernel may hold either in a part that is applied alone, and the next
	// Apply rewrites it. The first Apply replaces what an earlier process left.
	Apply(rules Rules) error
	// Intact reports whether the kernel still holds what Apply wrote, as far as that is
	// known. If not, the next Apply rewrites everything.
	Intact() (bool, error)
	// Remove removes everything from the kernel.
	Remove() error
}

// Config configures a Proxy.
type Config struct {
	Client   *client.Client
	NodeName string
	Backend  Backend
	// ClusterCIDRs are the ranges of pods. No Service gets one of their addresses.
	ClusterCIDRs []netip.Prefix
	// NodePortAddresses says at which addresses of the node its node ports answer.
	NodePortAddresses NodePortAddresses
	// Ports knows which ports of this node others have. Without it, rules take any
	// port that is not in Reserved.
	Ports Ports
	// Reserved are ports of this node on which the cluster itself serves. No rules
	// take them.
	Reserved []int
	// NeighbourPorts returns the ports on which other clusters of this machine
	// serve when they run. No rules take them. It is called at each check of the
	// kernel.
	NeighbourPorts func() []int
	// Events records which pods and Services do not get a port; nil is none.
	Events record.EventRecorder
	// Families are those of which the Backend has rules, IPv4 by default. They are
	// labels of metrics.
	Families []v1.IPFamily
	// Mode is the answer to /proxyMode, such as nftables.
	Mode string
	// HealthzAddress and MetricsAddress are where the servers listen. Upstream's
	// defaults are 0.0.0.0:10256 and 127.0.0.1:10249.
	HealthzAddress ListenAddress
	MetricsAddress ListenAddress
	// Metrics are served at MetricsAddress. The default is a new registry.
	Metrics *registry.Registry
	// Pages are more pages at MetricsAddress, by path, such as /configz.
	Pages map[string]http.Handler
	// CheckPeriod is the interval at which the kernel is checked
	// (Backend.Intact), 3 s by default. RetryPeriod is the wait after a
	// failure, 1 s by default.
	CheckPeriod time.Duration
	RetryPeriod time.Duration
	// MinSyncPeriod is the least time between two Applies. A change that has waited for
	// twice SyncPeriod to be applied makes the proxy unhealthy; 0 means a minute.
	MinSyncPeriod time.Duration
	SyncPeriod    time.Duration
	// WithoutExternalIPs leaves spec.externalIPs of Services out (the gate
	// AllowServiceExternalIPs is off).
	WithoutExternalIPs bool
	// MostOfNamespace bounds the Services of a namespace that a node serves, in ports,
	// endpoints of ports and external addresses. 0 means 500,000.
	MostOfNamespace int
}

// Proxy is the Service proxy of a node.
type Proxy struct {
	config  Config
	state   *state
	permit  *permitter
	health  *health
	metrics *metrics
	// full says that the next Apply writes everything.
	full bool
}

// New returns a proxy that does not run yet.
func New(config Config) *Proxy {
	if config.CheckPeriod == 0 {
		config.CheckPeriod = 3 * time.Second
	}
	if config.RetryPeriod == 0 {
		config.RetryPeriod = time.Second
	}
	if config.Metrics == nil {
		config.Metrics = registry.NewRegistry(nil)
	}
	if config.Ports == nil {
		config.Ports = unknownPorts{}
	}
	if len(config.Families) == 0 {
		config.Families = []v1.IPFamily{v1.IPv4Protocol}
	}
	p := &Proxy{config: config, state: newState(config.NodeName), health: newHealth(), full: true}
	if config.SyncPeriod > 0 {
		p.health.timeout = 2 * config.SyncPeriod
	}
	if config.MostOfNamespace > 0 {
		p.state.mostOfNamespace = config.MostOfNamespace
	}
	p.metrics = newMetrics(config.Metrics, p.state, config.Families)
	p.state.nodePorts = config.NodePortAddresses
	p.permit = &permitter{
		state: p.state, nodeName: config.NodeName, ports: config.Ports, events: config.Events,
		clusterCIDRs: config.ClusterCIDRs, reserved: config.Reserved, neighbours: config.NeighbourPorts,
	}
	return p
}

// Run applies the cluster's Services until ctx ends. The rules stay in the
// kernel, so that connections survive a restart of the proxy; Backend.Remove
// removes them.
func (p *Proxy) Run(ctx context.Context) error { return supervise.Run(ctx, p.run) }

func (p *Proxy) run(ctx context.Context) error {
	servers, err := p.listen(ctx)
	if err != nil {
		return err
	}
	defer servers.stop()
	defer p.config.Ports.Release()
	p.begin()
	synced, err := p.watch(ctx)
	if err != nil {
		return err
	}
	if !cache.WaitFor(ctx, "", synced...) {
		return nil
	}
	p.applyLoop(ctx, servers.localHealth)
	return nil
}

// begin makes the next rules from the objects alone, and claims their ports: a panic may
// have ended the making of the last ones half-way, and the ports have been released.
func (p *Proxy) begin() {
	p.state.begin()
	p.permit.settled = false
}

// watch passes the informers' events to the state. It returns checkers of
// whether all initial objects have been passed on.
func (p *Proxy) watch(ctx context.Context) ([]cache.DoneChecker, error) {
	reduced := func(of schema.GroupVersion, resource string, selector fields.Selector) cache.SharedIndexInformer {
		return p.config.Client.WatchReduced(of.WithResource(resource), "", selector, reduce)
	}
	own := fields.OneTermEqualSelector("spec.nodeName", p.config.NodeName)
	var synced []cache.DoneChecker
	for _, source := range []struct {
		subscribe func(context.Context, cache.SharedIndexInformer, cache.ResourceEventHandler) (cache.DoneChecker, error)
		informer  cache.SharedIndexInformer
		handler   cache.ResourceEventHandler
	}{
		{client.Follow, reduced(v1.SchemeGroupVersion, "services", fields.Everything()), client.SetHandler(p.setService, p.state.deleteService)},
		{client.Follow, reduced(discoveryv1.SchemeGroupVersion, "endpointslices", fields.Everything()), client.Handler(p.state.setSlice, p.state.updateSlice, p.state.deleteSlice)},
		{client.Subscribe, p.config.Client.Informers.Networking().V1().ServiceCIDRs().Informer(), client.SetHandler(p.state.setCIDR, p.state.deleteCIDR)},
		{client.Follow, reduced(v1.SchemeGroupVersion, "nodes", fields.Everything()), client.SetHandler(p.setNode, p.state.deleteNode)},
		{client.Follow, reduced(v1.SchemeGroupVersion, "pods", own), client.SetHandler(p.state.setPod, p.state.deletePod)},
	} {
		hasSynced, err := source.subscribe(ctx, source.informer, source.handler)
		if err != nil {
			return nil, fmt.Errorf("watching for the proxy: %w", err)
		}
		synced = append(synced, hasSynced)
	}
	return synced, nil
}

// setService takes a Service over. The informer's object stays as it is.
func (p *Proxy) setService(service *v1.Service) {
	if p.config.WithoutExternalIPs && len(service.Spec.ExternalIPs) > 0 {
		without := *service
		without.Spec.ExternalIPs = nil
		service = &without
	}
	p.state.setService(service)
}

// setNode passes a node to the state, and this node to the health server.
func (p *Proxy) setNode(node *v1.Node) {
	p.state.setNode(node)
	if node.Name == p.config.NodeName {
		p.health.setEligible(isEligible(node))
	}
}

// applyLoop applies changes until ctx ends.
func (p *Proxy) applyLoop(ctx context.Context, localHealth func(Rules)) {
	applyloop.Loop{
		Name: "services", Changed: p.state.changed,
		Apply: func() error { return p.apply(ctx, localHealth) },
		Intact: func() (bool, error) {
			if p.permit.changed(ctx) {
				p.state.notify()
			}
			intact, err := p.config.Backend.Intact()
			p.full = p.full || err == nil && !intact
			return intact, err
		},
		CheckPeriod: p.config.CheckPeriod, RetryPeriod: p.config.RetryPeriod, MinPeriod: p.config.MinSyncPeriod,
	}.Run(ctx)
}

// apply applies the rules of the state.
func (p *Proxy) apply(ctx context.Context, localHealth func(Rules)) error {
	changes := p.state.takeChanges()
	rules := p.permit.rules(ctx)
	p.health.queued()
	started := time.Now()
	err := p.config.Backend.Apply(rules)
	p.metrics.synced(p.full, time.Since(started), err)
	if p.full = err != nil; p.full {
		p.state.keepChanges(changes)
		return err
	}
	p.metrics.applied(rules, changes)
	p.health.applied()
	localHealth(rules)
	klog.FromContext(ctx).V(4).Info("Applied rules", "servicePorts", rules.Services.Len(), "took", time.Since(started))
	return nil
}
