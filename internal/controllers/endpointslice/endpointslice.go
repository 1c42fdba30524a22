// Package endpointslice is the EndpointSlice controller. It maintains the EndpointSlices of
// Services with selectors, with the reconciler of k8s.io/endpointslice.
package endpointslice

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	reconciler "k8s.io/endpointslice"
	"k8s.io/endpointslice/metrics"
	"k8s.io/endpointslice/topologycache"
	endpointsliceutil "k8s.io/endpointslice/util"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/pods"
	"github.com/coracle-io/coracle/internal/nodestatus"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	o := defaultOptions()
	return controller.Descriptor{
		Name:           "endpointslice-controller",
		Aliases:        []string{"endpointslice"},
		ServiceAccount: "endpointslice-controller",
		EventSource:    "endpoint-slice-controller",
		AddFlags:       o.addFlags,
		Validate:       o.validate,
		New:            func(env *controller.Env) (controller.Controller, error) { return newController(env, o) },
	}
}

type options struct {
	workers      int
	maxEndpoints int // in a slice
	// batch is how long changes of pods and slices wait for others of the same Service.
	batch time.Duration
}

func defaultOptions() *options { return &options{workers: 5, maxEndpoints: 100} }

func (o *options) addFlags(fs *pflag.FlagSet) {
	controller.WorkersFlag(&o.workers, "concurrent-service-endpoint-syncs", "service endpoint slices")(fs)
	fs.IntVar(&o.maxEndpoints, "max-endpoints-per-slice", o.maxEndpoints, "maximum number of endpoints in an EndpointSlice")
	fs.DurationVar(&o.batch, "endpointslice-updates-batch-period", o.batch, "how long changes of pods wait for others of the same Service before its EndpointSlices are updated; longer periods save updates and delay endpoints")
}

func (o *options) validate() error {
	return errors.Join(
		controller.CheckRange("concurrent-service-endpoint-syncs", o.workers, 1, 50),
		controller.CheckRange("max-endpoints-per-slice", o.maxEndpoints, 1, 1000),
	)
}

// managedBy is the value of the managed-by label of this controller's slices.
const managedBy = "endpointslice-controller.k8s.io"

// topologyKey returns the key that is enqueued when the topology of the nodes changes. Its sync
// enqueues Services whose topology hints have become invalid.
func topologyKey() controller.Key { return controller.Key{} }

type slices struct {
	env        *controller.Env
	options    *options
	services   corelisters.ServiceLister
	pods       cache.SharedIndexInformer
	nodes      corelisters.NodeLister
	slices     cache.SharedIndexInformer
	tracker    *endpointsliceutil.EndpointSliceTracker
	triggers   *endpointsliceutil.TriggerTimeTracker
	topology   *topologycache.TopologyCache
	reconciler *reconciler.Reconciler
	queue      *controller.Queue[controller.Key]
}

func newController(env *controller.Env, o *options) (controller.Controller, error) {
	metrics.RegisterMetrics() // creates them; they are those of the process
	if err := env.Expose(metrics.EndpointsAddedPerSync, metrics.EndpointsRemovedPerSync, metrics.EndpointsDesired, metrics.NumEndpointSlices,
		metrics.DesiredEndpointSlices, metrics.EndpointSliceChanges, metrics.EndpointSlicesChangedPerSync, metrics.EndpointSliceSyncs,
		metrics.ServicesCountByTrafficDistribution); err != nil {
		return nil, err
	}
	core := env.Client.Informers.Core().V1()
	c := &slices{
		env:      env,
		options:  o,
		services: core.Services().Lister(),
		pods:     core.Pods().Informer(),
		nodes:    core.Nodes().Lister(),
		slices:   env.Client.Informers.Discovery().V1().EndpointSlices().Informer(),
		tracker:  endpointsliceutil.NewEndpointSliceTracker(),
		triggers: endpointsliceutil.NewTriggerTimeTracker(),
		topology: topologycache.NewTopologyCache(),
	}
	c.reconciler = reconciler.NewReconciler(env.Client.Kubernetes, c.nodes, int32(o.maxEndpoints),
		c.tracker, c.topology, env.Events, managedBy, reconciler.WithPreferSameTrafficDistributionEnabled(true))
	c.queue = controller.NewQueue(env.Queues, "endpoint_slice", c.sync)
	return c, errors.Join(pods.IndexServices(env), env.Index(c.slices, pods.ByService, pods.SliceKeys))
}

// Run implements controller.Controller.
func (c *slices) Run(ctx context.Context) error {
	core := c.env.Client.Informers.Core().V1()
	return controller.Serve(ctx, append(pods.ServiceSources(c.env, c.queue, c.options.batch),
		controller.On(c.slices, c.sliceChanged),
		controller.On(core.Nodes().Informer(), func(old, new *v1.Node) {
			if topologyChanged(old, new) {
				c.queue.Add(topologyKey())
			}
		}),
	), c.queue.Workers(c.options.workers))
}

// sliceChanged enqueues the Service of a slice that was not changed by this controller.
func (c *slices) sliceChanged(old, new *discovery.EndpointSlice) {
	switch {
	case new == nil:
		if c.reconciler.ManagedByController(old) && c.tracker.Has(old) && !c.tracker.HandleDeletion(old) {
			c.enqueueServiceOf(old)
		}
	case old == nil:
		if c.reconciler.ManagedByController(new) && c.tracker.ShouldSync(new) {
			c.enqueueServiceOf(new)
		}
	case old.Labels[discovery.LabelServiceName] != new.Labels[discovery.LabelServiceName]:
		c.enqueueServiceOf(old)
		c.enqueueServiceOf(new)
	case c.reconciler.ManagedByChanged(old, new),
		c.reconciler.ManagedByController(new) && c.tracker.ShouldSync(new):
		c.enqueueServiceOf(new)
	}
}

func (c *slices) enqueueServiceOf(slice *discovery.EndpointSlice) {
	if service := slice.Labels[discovery.LabelServiceName]; service != "" {
		c.queue.AddAfter(controller.Key{Namespace: slice.Namespace, Name: service}, c.options.batch)
	}
}

func (c *slices) sync(ctx context.Context, key controller.Key) error {
	if key == topologyKey() {
		return c.checkTopology(ctx)
	}
	service, err := c.services.Services(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		c.forget(key)
		return nil
	}
	if err != nil {
		return err
	}
	if service.Spec.Type == v1.ServiceTypeExternalName {
		c.forget(key)
		return nil
	}
	if service.Spec.Selector == nil {
		return nil
	}
	selected, err := pods.Selected(c.pods, key.Namespace, pods.SelectorOf(service))
	if err != nil {
		return err
	}
	existing, err := pods.SlicesOf(c.slices, key, managedBy)
	if err != nil {
		return err
	}
	live := existing[:0]
	for _, s := range existing {
		if s.DeletionTimestamp == nil {
			live = append(live, s)
		}
	}
	if c.tracker.StaleSlices(service, live) {
		return controller.ErrStale
	}
	changed := c.triggers.ComputeEndpointLastChangeTriggerTime(key.Namespace, service, selected)
	if err := c.reconciler.Reconcile(klog.FromContext(ctx), service, selected, live, changed); err != nil {
		if apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause) {
			return nil
		}
		c.env.Events.Eventf(service, v1.EventTypeWarning, "FailedToUpdateEndpointSlices", "Error updating Endpoint Slices for Service %s: %v", key, err)
		return fmt.Errorf("updating slices: %w", err)
	}
	return nil
}

// forget drops the state of a Service without slices. The garbage collector deletes its slices.
func (c *slices) forget(key controller.Key) {
	c.triggers.DeleteService(key.Namespace, key.Name)
	c.reconciler.DeleteService(key.Namespace, key.Name)
	c.tracker.DeleteService(key.Namespace, key.Name)
}

// checkTopology updates the topology cache and enqueues overloaded Services.
func (c *slices) checkTopology(ctx context.Context) error {
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	c.topology.SetNodes(klog.FromContext(ctx), nodes)
	for _, service := range c.topology.GetOverloadedServices() {
		if key, err := cache.ParseObjectName(service); err == nil {
			c.queue.Add(key)
		}
	}
	return nil
}

// topologyChanged reports whether a change of a node affects topology hints, which depend on its
// labels, CPUs and readiness.
func topologyChanged(old, new *v1.Node) bool {
	if old == nil || new == nil {
		return true
	}
	return !maps.Equal(old.Labels, new.Labels) ||
		!old.Status.Allocatable.Cpu().Equal(*new.Status.Allocatable.Cpu()) ||
		nodestatus.Ready(old) != nodestatus.Ready(new)
}
