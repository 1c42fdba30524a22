// Package endpointslicemirroring is the EndpointSlice mirroring controller. It mirrors Endpoints
// that users maintain for Services without selectors to EndpointSlices, which proxies and DNS
// read.
//
//nolint:staticcheck // Endpoints are deprecated but must be mirrored.
package endpointslicemirroring

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	endpointsliceutil "k8s.io/endpointslice/util"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/pods"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	o := defaultOptions()
	return controller.Descriptor{
		Name:           "endpointslice-mirroring-controller",
		Aliases:        []string{"endpointslicemirroring"},
		ServiceAccount: "endpointslicemirroring-controller",
		EventSource:    "endpoint-slice-mirroring-controller",
		AddFlags:       o.addFlags,
		Validate:       o.validate,
		New:            func(env *controller.Env) (controller.Controller, error) { return newController(env, o) },
	}
}

type options struct {
	workers      int
	maxEndpoints int // in a subset
	// batch is how long changes of slices wait for others of the same Service.
	batch time.Duration
}

func defaultOptions() *options { return &options{workers: 5, maxEndpoints: 1000} }

func (o *options) addFlags(fs *pflag.FlagSet) {
	controller.WorkersFlag(&o.workers, "mirroring-concurrent-service-endpoint-syncs", "mirrored endpoints")(fs)
	fs.IntVar(&o.maxEndpoints, "mirroring-max-endpoints-per-subset", o.maxEndpoints, "maximum number of endpoints that are mirrored from one subset of Endpoints")
	fs.DurationVar(&o.batch, "mirroring-endpointslice-updates-batch-period", o.batch, "how long changes of mirrored EndpointSlices wait for others of the same Service before they are corrected")
}

func (o *options) validate() error {
	return errors.Join(
		controller.CheckRange("mirroring-concurrent-service-endpoint-syncs", o.workers, 1, 50),
		controller.CheckRange("mirroring-max-endpoints-per-subset", o.maxEndpoints, 1, 1000),
	)
}

// managedBy is the value of the managed-by label of this controller's slices.
const managedBy = "endpointslicemirroring-controller.k8s.io"

// maxPerSlice is the maximum number of endpoints in a slice.
const maxPerSlice = 1000

type mirror struct {
	env       *controller.Env
	options   *options
	endpoints corelisters.EndpointsLister
	services  corelisters.ServiceLister
	slices    cache.SharedIndexInformer
	tracker   *endpointsliceutil.EndpointSliceTracker
	queue     *controller.Queue[controller.Key]
}

func newController(env *controller.Env, o *options) (controller.Controller, error) {
	core := env.Client.Informers.Core().V1()
	c := &mirror{
		env:       env,
		options:   o,
		endpoints: core.Endpoints().Lister(),
		services:  core.Services().Lister(),
		slices:    env.Client.Informers.Discovery().V1().EndpointSlices().Informer(),
		tracker:   endpointsliceutil.NewEndpointSliceTracker(),
	}
	c.queue = controller.NewQueue(env.Queues, "endpoint_slice_mirroring", c.sync)
	return c, env.Index(c.slices, pods.ByService, pods.SliceKeys)
}

// Run implements controller.Controller.
func (c *mirror) Run(ctx context.Context) error {
	core := c.env.Client.Informers.Core().V1()
	return controller.Serve(ctx, []controller.Source{
		controller.On(core.Endpoints().Informer(), func(old, new *v1.Endpoints) {
			if old != nil && mirrored(old) || new != nil && mirrored(new) {
				c.queue.Add(cache.MetaObjectToName(cmp.Or(new, old)))
			}
		}),
		controller.On(core.Services().Informer(), func(old, new *v1.Service) {
			if old == nil || new == nil || (old.Spec.Selector == nil) != (new.Spec.Selector == nil) {
				c.queue.Add(cache.MetaObjectToName(cmp.Or(new, old)))
			}
		}),
		controller.On(c.slices, c.sliceChanged),
	}, c.queue.Workers(c.options.workers))
}

// sliceChanged enqueues the Endpoints of a slice that was not changed by this controller.
func (c *mirror) sliceChanged(old, new *discovery.EndpointSlice) {
	switch {
	case new == nil:
		if owned(old) && c.tracker.Has(old) && !c.tracker.HandleDeletion(old) {
			c.enqueueFor(old)
		}
	case old != nil && owned(old) && (!owned(new) || old.Labels[discovery.LabelServiceName] != new.Labels[discovery.LabelServiceName]):
		c.enqueueFor(old)
		c.enqueueFor(new)
	case owned(new) && c.tracker.ShouldSync(new):
		c.enqueueFor(new)
	}
}

func owned(s *discovery.EndpointSlice) bool { return s.Labels[discovery.LabelManagedBy] == managedBy }

func (c *mirror) enqueueFor(s *discovery.EndpointSlice) {
	if name := s.Labels[discovery.LabelServiceName]; name != "" {
		c.queue.AddAfter(controller.Key{Namespace: s.Namespace, Name: name}, c.options.batch)
	}
}

func (c *mirror) sync(ctx context.Context, key controller.Key) error {
	existing, err := pods.SlicesOf(c.slices, key, managedBy)
	if err != nil {
		return err
	}
	endpoints, service, err := c.source(key)
	if err != nil {
		return err
	}
	if service == nil {
		c.tracker.DeleteService(key.Namespace, key.Name)
		return c.write(ctx, endpoints, nil, nil, existing)
	}
	if c.tracker.StaleSlices(service, existing) {
		return controller.ErrStale
	}
	groups, skip := groupsOf(endpoints, c.options.maxEndpoints)
	if skip.invalid > 0 {
		c.env.Events.Eventf(endpoints, v1.EventTypeWarning, "InvalidIPAddress",
			"Skipped %d invalid IP addresses when mirroring to EndpointSlices", skip.invalid)
	}
	if skip.excess > 0 {
		c.env.Events.Eventf(endpoints, v1.EventTypeWarning, "TooManyAddressesToMirror",
			"A max of %d addresses can be mirrored to EndpointSlices per Endpoints subset. %d addresses were skipped",
			c.options.maxEndpoints, skip.excess)
	}
	create, update, remove := plan(endpoints, groups, existing, maxPerSlice)
	if err := c.write(ctx, endpoints, create, update, remove); err != nil {
		if apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause) {
			return nil
		}
		c.env.Events.Eventf(endpoints, v1.EventTypeWarning, "FailedToUpdateEndpointSlices",
			"Error updating EndpointSlices for Endpoints %s: %v", key, err)
		return err
	}
	return nil
}

// source returns the Endpoints to mirror and their Service. The Service is nil if nothing must be
// mirrored.
func (c *mirror) source(key controller.Key) (*v1.Endpoints, *v1.Service, error) {
	endpoints, err := c.endpoints.Endpoints(key.Namespace).Get(key.Name)
	if err != nil {
		return nil, nil, controller.IgnoreNotFound(err)
	}
	service, err := c.services.Services(key.Namespace).Get(key.Name)
	if err != nil {
		return nil, nil, controller.IgnoreNotFound(err)
	}
	if !mirrored(endpoints) || service.Spec.Selector != nil {
		return nil, nil, nil
	}
	return endpoints, service, nil
}

// write applies the planned changes. It creates slices first, so that no endpoint is missing in
// between.
func (c *mirror) write(ctx context.Context, of *v1.Endpoints, create, update, remove []*discovery.EndpointSlice) error {
	api := c.env.Client.Kubernetes.DiscoveryV1()
	for _, s := range create {
		made, err := api.EndpointSlices(s.Namespace).Create(ctx, s, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("mirroring Endpoints %s: %w", of.Name, err)
		}
		c.tracker.Update(made)
	}
	for _, s := range update {
		made, err := api.EndpointSlices(s.Namespace).Update(ctx, s, metav1.UpdateOptions{})
		if err != nil {
			return fmt.Errorf("updating EndpointSlice %s: %w", s.Name, err)
		}
		c.tracker.Update(made)
	}
	for _, s := range remove {
		err := api.EndpointSlices(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &s.UID}})
		if controller.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting EndpointSlice %s: %w", s.Name, err)
		}
		c.tracker.ExpectDeletion(s)
	}
	return nil
}
