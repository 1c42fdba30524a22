// Package endpoints is the Endpoints controller. It maintains the Endpoints of Services with
// selectors.
//
//nolint:staticcheck // Endpoints are deprecated but must be maintained.
package endpoints

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	endpointsliceutil "k8s.io/endpointslice/util"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/pods"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	o := &options{workers: 5}
	return controller.Descriptor{
		Name:           "endpoints-controller",
		Aliases:        []string{"endpoint"},
		ServiceAccount: "endpoint-controller",
		EventSource:    "endpoint-controller",
		AddFlags:       o.addFlags,
		New:            func(env *controller.Env) (controller.Controller, error) { return newController(env, o) },
	}
}

type options struct {
	workers int
	// batch is how long changes of pods wait for others of the same Service.
	batch time.Duration
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	controller.WorkersFlag(&o.workers, "concurrent-endpoint-syncs", "endpoints")(fs)
	fs.DurationVar(&o.batch, "endpoint-updates-batch-period", o.batch, "how long changes of pods wait for others of the same Service before its Endpoints are updated; longer periods save updates and delay endpoints")
}

// Label of the objects that this controller manages.
const (
	labelManagedBy = "endpoints.kubernetes.io/managed-by"
	managedBy      = "endpoint-controller"
)

type endpoints struct {
	env       *controller.Env
	kube      kubernetes.Interface
	services  corelisters.ServiceLister
	pods      cache.SharedIndexInformer
	endpoints corelisters.EndpointsLister
	triggers  *endpointsliceutil.TriggerTimeTracker
	queue     *controller.Queue[controller.Key]
	options   *options
}

func newController(env *controller.Env, o *options) (controller.Controller, error) {
	kube, err := withoutWarnings(env)
	if err != nil {
		return nil, err
	}
	core := env.Client.Informers.Core().V1()
	c := &endpoints{
		env:       env,
		options:   o,
		kube:      kube,
		services:  core.Services().Lister(),
		pods:      core.Pods().Informer(),
		endpoints: core.Endpoints().Lister(),
		triggers:  endpointsliceutil.NewTriggerTimeTracker(),
	}
	c.queue = controller.NewQueue(env.Queues, "endpoint", c.sync)
	return c, pods.IndexServices(env)
}

// withoutWarnings returns a client that does not log the deprecation warning for every write of
// Endpoints.
func withoutWarnings(env *controller.Env) (kubernetes.Interface, error) {
	if env.Client.Config == nil {
		return env.Client.Kubernetes, nil
	}
	config := rest.CopyConfig(env.Client.Config)
	config.WarningHandler = rest.NoWarnings{}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return kube, nil
}

// Run implements controller.Controller.
func (c *endpoints) Run(ctx context.Context) error {
	core := c.env.Client.Informers.Core().V1()
	return controller.Serve(ctx, append(pods.ServiceSources(c.env, c.queue, c.options.batch),
		controller.On(core.Endpoints().Informer(), func(old, new *v1.Endpoints) {
			// The Service of a new object may not exist, and a deleted object must be
			// created again.
			if old == nil {
				c.queue.Add(cache.MetaObjectToName(new))
			} else if new == nil {
				c.queue.Add(cache.MetaObjectToName(old))
			}
		}),
	), c.queue.Workers(c.options.workers))
}

func (c *endpoints) sync(ctx context.Context, key controller.Key) error {
	service, err := c.services.Services(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return c.remove(ctx, key)
	}
	if err != nil {
		return err
	}
	if service.Spec.Type == v1.ServiceTypeExternalName || service.Spec.Selector == nil {
		return nil
	}
	selected, err := pods.Selected(c.pods, key.Namespace, pods.SelectorOf(service))
	if err != nil {
		return err
	}
	have, err := c.endpoints.Endpoints(key.Namespace).Get(key.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if apierrors.IsNotFound(err) {
		have = nil
	}
	changed := c.triggers.ComputeEndpointLastChangeTriggerTime(key.Namespace, service, selected)
	want := desired(service, selected, have, changed)
	if have != nil && upToDate(have, want) {
		return nil
	}
	return c.write(ctx, service, have, want)
}

// remove deletes the Endpoints of a deleted Service, unless this controller does not manage
// them.
func (c *endpoints) remove(ctx context.Context, key controller.Key) error {
	c.triggers.DeleteService(key.Namespace, key.Name)
	have, err := c.endpoints.Endpoints(key.Namespace).Get(key.Name)
	if err == nil && have.Labels[labelManagedBy] == managedBy {
		err = c.kube.CoreV1().Endpoints(key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &have.UID},
		})
	}
	return controller.IgnoreNotFound(err)
}

func (c *endpoints) write(ctx context.Context, service *v1.Service, have, want *v1.Endpoints) error {
	client := c.kube.CoreV1().Endpoints(service.Namespace)
	if have == nil {
		_, err := client.Create(ctx, want, metav1.CreateOptions{})
		if apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause) {
			return nil
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			c.env.Events.Eventf(want, v1.EventTypeWarning, "FailedToCreateEndpoint", "Failed to create endpoint for service %v/%v: %v", service.Namespace, service.Name, err)
		}
		return err
	}
	_, err := client.Update(ctx, want, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsConflict(err) {
		c.env.Events.Eventf(want, v1.EventTypeWarning, "FailedToUpdateEndpoint", "Failed to update endpoint %v/%v: %v", service.Namespace, service.Name, err)
	}
	return err
}

// desired returns the Endpoints of a Service. It keeps metadata of the existing ones, which may
// be nil. changed is the trigger time of the last change, or zero if it is unknown.
func desired(service *v1.Service, pods []*v1.Pod, have *v1.Endpoints, changed time.Time) *v1.Endpoints {
	want := &v1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: service.Namespace, Name: service.Name}}
	if have != nil {
		want.ObjectMeta = *have.ObjectMeta.DeepCopy()
	}
	want.Labels = maps.Clone(service.Labels)
	if want.Labels == nil {
		want.Labels = map[string]string{}
	}
	want.Labels[labelManagedBy] = managedBy
	if service.Spec.ClusterIP == v1.ClusterIPNone {
		want.Labels[v1.IsHeadlessService] = ""
	} else {
		delete(want.Labels, v1.IsHeadlessService)
	}
	if want.Annotations == nil {
		want.Annotations = map[string]string{}
	}
	if changed.IsZero() {
		delete(want.Annotations, v1.EndpointsLastChangeTriggerTime)
	} else {
		want.Annotations[v1.EndpointsLastChangeTriggerTime] = changed.UTC().Format(time.RFC3339Nano)
	}
	var truncated bool
	want.Subsets, truncated = subsets(service, pods)
	if truncated {
		want.Annotations[v1.EndpointsOverCapacity] = "truncated"
	} else {
		delete(want.Annotations, v1.EndpointsOverCapacity)
	}
	return want
}

// upToDate reports whether Endpoints differ at most in the trigger time.
func upToDate(have, want *v1.Endpoints) bool {
	return equality.Semantic.DeepEqual(have.Subsets, want.Subsets) &&
		maps.Equal(have.Labels, want.Labels) &&
		have.Annotations[v1.EndpointsOverCapacity] == want.Annotations[v1.EndpointsOverCapacity]
}
