// Package ingress is a controller of Ingresses and Gateways. It makes a route table of
// those of its classes and what they refer to, and the ports of the node serve by it:
//
//	Ingresses, IngressClasses ──────────┐  none of ours: nothing else is watched, no port is taken
//	Gateways, HTTPRoutes, ... ──────────┤  while the definitions of the Gateway API are installed
//	                                    ▼
//	Services, EndpointSlices, ───────► compile ─► table.Table ─► proxy.Proxy ◄─ ports 80 and 443
//	Pods, Secrets                       │
//	                                    └─► events; status.loadBalancer while the ports are open
//
// A change makes a new table, which replaces the former one in one step; if only endpoints
// have changed, the table stays, and its backends get others. Requests go to
// the endpoints themselves, not to the address of the Service, and only to pods of the
// namespace: this process reaches more than they do, such as the node's own servers and
// pods behind network policies, and endpoints may name any address.
package ingress

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/ingress/gateway"
	"github.com/coracle-io/coracle/internal/ingress/proxy"
	"github.com/coracle-io/coracle/internal/supervise"
)

const (
	// User is the identity of the API that a Controller works with. Of Secrets, it may
	// list and watch those of the type kubernetes.io/tls alone.
	User = "system:coracle:ingress"
	// ControllerName is the name by which IngressClasses ask for this controller.
	ControllerName = "coracle.io/ingress"
	// DefaultClass is the name of the IngressClass that a Controller creates.
	DefaultClass = "coracle"

	// settle is the least pause after a new table, in which further changes gather. A
	// table that took longer to make has a pause of busyShare times as long, so that
	// many Ingresses do not keep a processor busy.
	settle, busyShare = 20 * time.Millisecond, 4
	// patience is how long the first table waits for Services, EndpointSlices, Pods and
	// Secrets.
	patience = 10 * time.Second
)

// Config configures a Controller.
type Config struct {
	Client *client.Client
	Events record.EventRecorder
	Proxy  *proxy.Proxy
	// Addresses are those of the node, for the status of Ingresses.
	Addresses []string
	// HTTPPort and HTTPSPort are the ports to serve on, at all addresses.
	HTTPPort, HTTPSPort int
	// Listen opens a port. The default listens with TCP.
	Listen func(port int) (net.Listener, error)
}

// Controller serves Ingresses on a node.
type Controller struct {
	Config
	queue  *controller.Queue[struct{}] // of one key: a table depends on all objects
	status *controller.Queue[controller.Key]
	ports  *ports

	gateways      *gatewayAPI
	gatewayStatus *controller.Queue[gatewayStatusKey]
	written       map[gatewayStatusKey]time.Time // which statuses were written lately; the worker of gatewayStatus alone uses it

	ingresses, classes cache.Indexer // set by Run
	nodes              cache.Indexer

	// The worker of queue alone uses what follows.
	backends     *backendObjects // nil until there is an Ingress of this controller
	certificates certificates
	reported     map[types.UID]map[problem]bool // the events of each Ingress
	announced    map[types.UID]bool             // whether ports were open when the status was last written

	mu      sync.Mutex         // guards the following
	served  map[types.UID]bool // the Ingresses of this controller
	leads   leads
	pending map[gatewayStatusKey]gatewayStatus
}

// leads is where Ingresses and Gateways lead, and what has changed there.
type leads struct {
	services   map[serviceName]bool
	namespaces map[string]bool // of these Services
	changes    changes         // since the last table
}

// changes are what a table has to follow.
type changes struct {
	anything  bool                 // may have changed, and not only what follows
	services  map[serviceName]bool // or their endpoints
	addresses map[string]bool      // of pods, as NAMESPACE/ADDRESS
}

// add adds changes of Services and of addresses of pods.
func (c *changes) add(services []serviceName, addresses []string) {
	if c.services == nil {
		c.services, c.addresses = map[serviceName]bool{}, map[string]bool{}
	}
	for _, s := range services {
		c.services[s] = true
	}
	for _, a := range addresses {
		c.addresses[a] = true
	}
}

// serviceName is the namespace and the name of a Service.
type serviceName struct{ namespace, name string }

// New returns a controller. It starts nothing.
func New(c Config) *Controller {
	if c.Listen == nil {
		c.Listen = func(port int) (net.Listener, error) { return net.Listen("tcp", fmt.Sprintf(":%d", port)) }
	}
	n := &Controller{Config: c, reported: map[types.UID]map[problem]bool{}, written: map[gatewayStatusKey]time.Time{}}
	n.queue = controller.NewQueueWithMaxDelay(nil, "ingress", 10*time.Second, func(ctx context.Context, _ struct{}) error { return n.sync(ctx) })
	n.status = controller.NewQueueWithMaxDelay(nil, "ingress-status", time.Minute, n.syncStatus)
	n.gatewayStatus = controller.NewQueueWithMaxDelay(nil, "gateway-status", time.Minute, n.syncGatewayStatus)
	n.gateways = newGatewayAPI(c.Client, n.changed)
	n.ports = newPorts(c.Listen, c.Proxy.Serve, c.HTTPPort, c.HTTPSPort, n.changed)
	n.certificates.secret = func(namespace, name string) *v1.Secret {
		return objectOf[*v1.Secret](n.backends.secrets, namespace, name)
	}
	return n
}

// Run serves until ctx ends, and then returns nil. It is called once.
func (c *Controller) Run(ctx context.Context) error {
	return supervise.Run(ctx, func(ctx context.Context) error {
		var synced []cache.DoneChecker
		for _, of := range []struct {
			into     *cache.Indexer
			resource schema.GroupVersionResource
			handler  cache.ResourceEventHandler
		}{
			{&c.ingresses, networkingv1.SchemeGroupVersion.WithResource("ingresses"), onChange(func(i *networkingv1.Ingress) {
				c.changed()
				c.status.Add(controller.Key{Namespace: i.Namespace, Name: i.Name})
			})},
			{&c.classes, networkingv1.SchemeGroupVersion.WithResource("ingressclasses"), onChange(func(*networkingv1.IngressClass) { c.changed() })},
			{&c.nodes, v1.SchemeGroupVersion.WithResource("nodes"), client.Handler(c.nodeAdded, c.nodeChanged, func(*v1.Node) { c.syncAll() })},
		} {
			informer := c.Client.WatchReduced(of.resource, "", fields.Everything(), reduce)
			*of.into = informer.GetIndexer()
			done, err := client.Follow(ctx, informer, of.handler)
			if err != nil {
				return err
			}
			synced = append(synced, done)
		}
		// It brings a new table when it is there: Ingresses need not wait for it.
		if _, err := c.gateways.followDefinition(ctx, gatewaysOfAPI); err != nil {
			return err
		}
		if !cache.WaitFor(ctx, "", synced...) {
			return nil
		}
		c.changed()
		group, ctx := supervise.WithContext(ctx)
		group.Go(func() error {
			c.keepClass(ctx)
			return nil
		})
		group.Go(func() error { return c.ports.run(ctx) })
		group.Go(func() error { return c.queue.Workers(1)(ctx) })
		group.Go(func() error { return c.status.Workers(2)(ctx) })
		group.Go(func() error { return c.gatewayStatus.Workers(1)(ctx) })
		return group.Wait()
	})
}

// changed asks for a new table, whatever has changed.
func (c *Controller) changed() {
	c.mu.Lock()
	c.leads.changes.anything = true
	c.mu.Unlock()
	c.queue.Add(struct{}{})
}

// onChange returns a handler that calls f for every change of an object, with its old
// and its new state.
func onChange[T any](f func(T)) cache.ResourceEventHandler {
	return client.Handler(f, func(old, obj T) { f(old); f(obj) }, f)
}

// nodeAdded checks the addresses of all Ingresses and Gateways if a node is the own one.
func (c *Controller) nodeAdded(n *v1.Node) {
	if c.isOwn(n) {
		c.syncAll()
	}
}

// nodeChanged checks the addresses of all Ingresses and Gateways if a node has others than
// before: former ones may be those of an Ingress.
func (c *Controller) nodeChanged(old, n *v1.Node) {
	if !slices.Equal(old.Status.Addresses, n.Status.Addresses) {
		c.syncAll()
	}
}

// syncAll checks the addresses of all Ingresses, and of Gateways, whose statuses come with
// a new table.
func (c *Controller) syncAll() {
	c.changed()
	for _, i := range allOf[*networkingv1.Ingress](c.ingresses) {
		c.status.Add(controller.Key{Namespace: i.Namespace, Name: i.Name})
	}
}

// objectOf returns an object of an indexer, or nil.
func objectOf[T any](in cache.Indexer, namespace, name string) (none T) {
	key := name
	if namespace != "" {
		key = namespace + "/" + name
	}
	obj, exists, err := in.GetByKey(key)
	if err != nil || !exists {
		return none
	}
	return obj.(T)
}

// allOf returns all objects of an indexer.
func allOf[T any](in cache.Indexer) []T {
	list := in.List()
	all := make([]T, len(list))
	for i, obj := range list {
		all[i] = obj.(T)
	}
	return all
}

// backendObjects are the objects to which Ingresses refer, with the backends of the table
// by which the proxy serves.
type backendObjects struct {
	services, slices, pods, secrets cache.Indexer
	compiled                        backends // nil before the first table
}

// byService is the index of EndpointSlices by NAMESPACE/NAME of their Service.
const byService = "service"

// watchBackends begins to watch what Ingresses refer to, until ctx ends. It returns once
// it has the objects, or after patience: what one of them lacks need not keep others
// from being served.
func (c *Controller) watchBackends(ctx context.Context) (*backendObjects, error) {
	services := c.Client.WatchReduced(v1.SchemeGroupVersion.WithResource("services"), "", fields.Everything(), reduce)
	endpoints := c.Client.WatchReduced(discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), "", fields.Everything(), reduce)
	pods := c.Client.WatchReduced(v1.SchemeGroupVersion.WithResource("pods"), "", fields.Everything(), reduce)
	secrets := c.Client.WatchReduced(v1.SchemeGroupVersion.WithResource("secrets"), "", fields.OneTermEqualSelector("type", string(v1.SecretTypeTLS)), reduce)
	if err := client.Index(ctx, endpoints, byService, func(obj any) ([]string, error) {
		s := obj.(*discoveryv1.EndpointSlice)
		return []string{s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]}, nil
	}); err != nil {
		return nil, err
	}
	if err := client.Index(ctx, endpoints, byAddress, func(obj any) ([]string, error) { return endpointKeys(obj.(*discoveryv1.EndpointSlice)), nil }); err != nil {
		return nil, err
	}
	if err := client.Index(ctx, pods, byAddress, func(obj any) ([]string, error) { return podKeys(obj.(*v1.Pod)), nil }); err != nil {
		return nil, err
	}
	var synced []cache.DoneChecker
	for _, of := range []struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{
		{services, onChange(func(s *v1.Service) { c.backendChanged(serviceName{s.Namespace, s.Name}) })},
		{endpoints, onChange(func(s *discoveryv1.EndpointSlice) {
			c.backendChanged(serviceName{s.Namespace, s.Labels[discoveryv1.LabelServiceName]})
		})},
		{pods, client.Handler(c.podChanged, func(old, pod *v1.Pod) {
			if !slices.Equal(podAddresses(old), podAddresses(pod)) {
				c.podChanged(old)
				c.podChanged(pod)
			}
		}, c.podChanged)},
		{secrets, onChange(func(*v1.Secret) { c.changed() })},
	} {
		done, err := client.Follow(ctx, of.informer, of.handler)
		if err != nil {
			return nil, err
		}
		synced = append(synced, done)
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if !cache.WaitFor(waiting, "", synced...) && ctx.Err() == nil {
		klog.FromContext(ctx).Info("Services, EndpointSlices, Pods or Secrets are not known yet; serving without them")
		supervise.Go(ctx, func() {
			if cache.WaitFor(ctx, "", synced...) {
				c.changed()
			}
		})
	}
	return &backendObjects{services: services.GetIndexer(), slices: endpoints.GetIndexer(), pods: pods.GetIndexer(), secrets: secrets.GetIndexer()}, nil
}

// backendChanged asks for the endpoints of a Service if an Ingress leads to it.
func (c *Controller) backendChanged(s serviceName) {
	c.mu.Lock()
	needed := c.leads.services[s]
	if needed {
		c.leads.changes.add([]serviceName{s}, nil)
	}
	c.mu.Unlock()
	if needed {
		c.queue.Add(struct{}{})
	}
}

// sync makes the proxy serve by the newest objects. If only endpoints have changed, the
// table stays and its backends get others, so that a rollout costs the same beside any
// number of hosts.
func (c *Controller) sync(ctx context.Context) error {
	began, since := time.Now(), c.take()
	done := false
	defer func() {
		if !done { // also after a panic
			c.mu.Lock()
			defer c.mu.Unlock()
			c.leads.changes.anything = true
		}
	}()
	if !since.anything && c.refresh(since) {
		done = true
		c.settle(ctx, began)
		return nil
	}
	err := c.syncTable(ctx)
	done = err == nil
	return err
}

// take returns the changes since the last call.
func (c *Controller) take() changes {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.leads.changes
	taken.anything = taken.anything || len(taken.services)+len(taken.addresses) == 0
	c.leads.changes = changes{}
	return taken
}

// refresh gives the backends of the table the newest endpoints of what has changed. It
// returns false if that is not enough.
func (c *Controller) refresh(since changes) bool {
	if c.backends == nil || c.backends.compiled == nil {
		return false
	}
	for key := range since.addresses {
		found, err := c.backends.slices.ByIndex(byAddress, key)
		if err != nil {
			return false
		}
		for _, obj := range found {
			s := obj.(*discoveryv1.EndpointSlice)
			since.services[serviceName{s.Namespace, s.Labels[discoveryv1.LabelServiceName]}] = true
		}
	}
	return c.backends.compiled.refresh(c.source(), since.services)
}

// settle waits after a change in which further ones gather.
func (c *Controller) settle(ctx context.Context, began time.Time) {
	supervise.Pause(ctx, max(settle, busyShare*time.Since(began)))
}

// source returns what a table is made of, without Ingresses and Gateways.
func (c *Controller) source() source {
	if c.backends == nil {
		return source{}
	}
	return source{
		service: func(namespace, name string) *v1.Service {
			return objectOf[*v1.Service](c.backends.services, namespace, name)
		},
		slices: c.slices, isPod: c.isPod,
		certificate: func(namespace, secret string) (*tls.Certificate, error) { return c.certificates.get(namespace, secret) },
	}
}

// syncTable makes the newest table, and the proxy serve by it.
func (c *Controller) syncTable(ctx context.Context) error {
	own := c.own()
	gateways, err := c.gateways.read(ctx)
	if err != nil {
		return err
	}
	gateways.HTTPPort, gateways.HTTPSPort, gateways.Addresses = c.HTTPPort, c.HTTPSPort, c.gatewayAddresses()
	serves := len(own) > 0 || gateways.Serves()
	c.remember(own, gateways.Routes)
	if serves && c.backends == nil {
		if c.backends, err = c.watchBackends(ctx); err != nil {
			return err
		}
	}
	began := time.Now()
	s := c.source()
	s.ingresses, s.gateways = own, gateways
	t, compiled, problems, plan := compile(s)
	if c.backends != nil {
		c.backends.compiled = compiled
	}
	c.certificates.forget()
	c.Proxy.Set(t)
	c.ports.want(serves)
	c.announce(own)
	c.report(own, problems)
	if err := c.announceGateways(plan); err != nil {
		return err
	}
	c.settle(ctx, began)
	return c.gateways.createClass(ctx)
}

// slices returns the EndpointSlices of a Service.
func (c *Controller) slices(namespace, service string) []*discoveryv1.EndpointSlice {
	found, err := c.backends.slices.ByIndex(byService, namespace+"/"+service)
	if err != nil {
		return nil
	}
	var all []*discoveryv1.EndpointSlice
	for _, obj := range found {
		all = append(all, obj.(*discoveryv1.EndpointSlice))
	}
	return all
}

// remember records which Ingresses are served, and which Services they and routes need.
func (c *Controller) remember(own []*networkingv1.Ingress, routes []*gateway.Route) {
	served, needed, namespaces := map[types.UID]bool{}, map[serviceName]bool{}, map[string]bool{}
	for _, i := range own {
		served[i.UID] = true
		need := func(b *networkingv1.IngressBackend) {
			if b != nil && b.Service != nil {
				needed[serviceName{i.Namespace, b.Service.Name}], namespaces[i.Namespace] = true, true
			}
		}
		need(i.Spec.DefaultBackend)
		for _, rule := range i.Spec.Rules {
			if rule.HTTP == nil {
				continue
			}
			for k := range rule.HTTP.Paths {
				need(&rule.HTTP.Paths[k].Backend)
			}
		}
	}
	for _, r := range routes {
		r.Services(func(namespace, name string) { needed[serviceName{namespace, name}], namespaces[namespace] = true, true })
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.served, c.leads.services, c.leads.namespaces = served, needed, namespaces
}

// announce writes the status of Ingresses that are new, and of all when ports have been
// opened or closed.
func (c *Controller) announce(own []*networkingv1.Ingress) {
	open := c.ports.open()
	announced := map[types.UID]bool{}
	for _, i := range own {
		if was, known := c.announced[i.UID]; !known || was != open {
			c.status.Add(controller.Key{Namespace: i.Namespace, Name: i.Name})
		}
		announced[i.UID] = open
	}
	c.announced = announced
}

// report records an event for each problem that an Ingress has not had before.
func (c *Controller) report(own []*networkingv1.Ingress, problems map[types.UID][]problem) {
	taken := c.ports.problems()
	alive := map[types.UID]map[problem]bool{}
	for _, i := range own {
		has := map[problem]bool{}
		for _, list := range [][]problem{taken, problems[i.UID]} {
			for _, p := range list {
				if has[p] = true; !c.reported[i.UID][p] {
					c.Events.Event(i, v1.EventTypeWarning, p.reason, p.message)
				}
			}
		}
		alive[i.UID] = has
	}
	c.reported = alive
}
