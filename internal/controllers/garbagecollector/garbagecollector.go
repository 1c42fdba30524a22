// Package garbagecollector is the garbage collector. It deletes objects whose owners
// no longer exist, according to the owner references of all objects, including
// custom resources.
//
//	informers of all resources ──events──▶ graph ──tasks──▶ queue ──▶ attemptToDelete | deleteDependents | orphanDependents
//
// An object is deleted when none of its owners exists (background), or before its
// owner if that is deleted in the foreground. If its owner is deleted with the
// policy Orphan, the object loses the owner reference and is kept.
package garbagecollector

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/kinds"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	o := defaultOptions()
	return controller.Descriptor{
		Name:           "garbage-collector-controller",
		Aliases:        []string{"garbagecollector"},
		ServiceAccount: "generic-garbage-collector",
		EventSource:    "garbage-collector-controller",
		AddFlags:       o.addFlags,
		New:            func(env *controller.Env) (controller.Controller, error) { return newController(env, o) },
	}
}

type options struct {
	enabled bool
	workers int
}

func defaultOptions() *options { return &options{enabled: true, workers: 20} }

func (o *options) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.enabled, "enable-garbage-collector", o.enabled, "delete objects whose owners are gone; must have the value of the API server's flag")
	controller.WorkersFlag(&o.workers, "concurrent-gc-syncs", "objects to collect")(fs)
}

// definesResources reports whether the objects of a resource define other resources.
// A change of such an object may change the served resources.
func definesResources(gr schema.GroupResource) bool {
	return gr == schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"} ||
		gr == schema.GroupResource{Group: "apiregistration.k8s.io", Resource: "apiservices"}
}

// discoveryDelay is the delay of a second discovery after a definition has changed,
// because the server updates its discovery documents a little later.
const discoveryDelay = time.Second

type collector struct {
	env      *controller.Env
	workers  int
	metadata metadata.Interface
	graph    *graph
	monitors *monitors
	queue    *controller.Queue[task]
	// discovery has a single key, which runs discover.
	discovery *controller.Queue[struct{}]
}

func newController(env *controller.Env, o *options) (controller.Controller, error) {
	if !o.enabled {
		return controller.Func(func(ctx context.Context) error { <-ctx.Done(); return nil }), nil
	}
	objects, err := env.Metadata()
	if err != nil {
		return nil, err
	}
	return newCollector(env, objects, o.workers), nil
}

func newCollector(env *controller.Env, objects metadata.Interface, workers int) *collector {
	c := &collector{env: env, workers: workers, metadata: objects, graph: newGraph()}
	c.monitors = &monitors{
		shared:   env.Client.Informers,
		metadata: objects,
		changed:  c.changed,
		running:  map[schema.GroupVersionResource]*kinds.Monitor{},
		known:    map[schema.GroupKind]kinds.Kind{},
	}
	c.queue = controller.NewQueue(env.Queues, "garbage_collector_attempt_to_delete", c.sync)
	c.discovery = controller.NewQueueWithMaxDelay(env.Queues, "garbage_collector_resources", 30*time.Second, c.discover)
	return c
}

// Run implements controller.Controller. It deletes nothing before the monitors of all
// resources have synced.
func (c *collector) Run(ctx context.Context) error {
	defer c.monitors.closeAll()
	for c.discover(ctx, struct{}{}) != nil && ctx.Err() == nil && len(c.monitors.list()) == 0 {
		supervise.Pause(ctx, discoveryDelay)
	}
	return controller.Serve(ctx, nil, c.discovery.Workers(1), c.queue.Workers(c.workers))
}

// changed handles an event of any resource.
func (c *collector) changed(resource schema.GroupVersionResource, meta metav1.Object, deleted bool) {
	o := object{resource: resource, namespace: meta.GetNamespace(), name: meta.GetName(), uid: meta.GetUID()}
	var tasks []task
	if deleted {
		tasks = c.graph.remove(o)
	} else {
		tasks = c.graph.put(o, meta)
	}
	for _, t := range tasks {
		c.queue.Add(t)
	}
	if definesResources(resource.GroupResource()) {
		c.discovery.Add(struct{}{})
		c.discovery.AddAfter(struct{}{}, discoveryDelay)
	}
}

func (c *collector) sync(ctx context.Context, t task) error {
	switch t.action {
	case deleteDependents:
		return c.deleteDependents(ctx, t.object)
	case orphanDependents:
		return c.orphanDependents(ctx, t.object)
	}
	return c.attemptToDelete(ctx, t.object)
}

// discover starts and stops monitors according to the served resources. It keeps the
// monitors of groups whose discovery fails.
func (c *collector) discover(ctx context.Context, _ struct{}) error {
	served, err := kinds.Served(c.env.Client.Kubernetes.Discovery())
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return fmt.Errorf("discovering resources: %w", err)
	}
	if err != nil {
		klog.FromContext(ctx).Info("Cannot discover some groups", "reason", err)
		served = union(served, c.monitors.list())
	}
	ended, watchErr := c.monitors.update(ctx, served)
	if watchErr != nil {
		klog.FromContext(ctx).Info("Cannot watch some resources for garbage collection", "reason", watchErr)
	}
	for _, resource := range ended {
		for _, t := range c.graph.forget(resource) {
			c.queue.Add(t)
		}
	}
	return err
}

// union returns the served kinds and those that were known before.
func union(served, known []kinds.Kind) []kinds.Kind {
	seen := map[schema.GroupResource]bool{}
	for _, k := range served {
		seen[k.Resource.GroupResource()] = true
	}
	for _, k := range known {
		if !seen[k.Resource.GroupResource()] {
			served = append(served, k)
		}
	}
	return served
}
