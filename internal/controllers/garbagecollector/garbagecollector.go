// Package garbagecollector deletes what nobody owns any longer, by the owner
// references of all objects, custom ones included.
//
//	informers of all resources ──events──▶ graph ──tasks──▶ queue ──▶ judge | foreground | orphan
//
// An object goes when all owners that it names are gone (background), before
// its owner if that is deleted in the foreground, and stays, without the
// reference, if its owner is deleted with the policy Orphan.
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
	fs.BoolVar(&o.enabled, "enable-garbage-collector", o.enabled, "Enables the generic garbage collector. MUST be synced with the corresponding flag of the kube-apiserver.")
	controller.WorkersFlag(&o.workers, "concurrent-gc-syncs", "garbage collector workers")(fs)
}

// Resources whose objects define further resources: when one changes, what is
// served may have changed.
var definitions = map[schema.GroupResource]bool{
	{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}: true,
	{Group: "apiregistration.k8s.io", Resource: "apiservices"}:             true,
}

// settle is how long after a change of a definition the resources are looked
// at once more: discovery follows a little later.
const settle = time.Second

type collector struct {
	env      *controller.Env
	workers  int
	metadata metadata.Interface
	graph    *graph
	monitors *monitors
	queue    *controller.Queue[task]
	// refresh has one key: look again at what is served.
	refresh *controller.Queue[struct{}]
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
		former:   map[schema.GroupKind]kinds.Kind{},
	}
	c.queue = controller.NewQueue("garbage_collector_attempt_to_delete", c.sync)
	c.refresh = controller.NewQueueWithin("garbage_collector_resources", 30*time.Second, c.discover)
	return c
}

// Run implements controller.Controller. Nothing is deleted before all
// resources have been seen once.
func (c *collector) Run(ctx context.Context) error {
	defer c.monitors.closeAll()
	for c.discover(ctx, struct{}{}) != nil && ctx.Err() == nil && len(c.monitors.list()) == 0 {
		select {
		case <-ctx.Done():
		case <-time.After(settle):
		}
	}
	return controller.Serve(ctx, nil, c.refresh.Workers(1), c.queue.Workers(c.workers))
}

// changed takes in an event of any resource.
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
	if definitions[resource.GroupResource()] {
		c.refresh.Add(struct{}{})
		c.refresh.AddAfter(struct{}{}, settle)
	}
}

func (c *collector) sync(ctx context.Context, t task) error {
	switch t.do {
	case foreground:
		return c.deleteForeground(ctx, t.object)
	case orphan:
		return c.orphanDependents(ctx, t.object)
	}
	return c.judge(ctx, t.object)
}

// discover watches what is served now. Resources of groups whose discovery
// fails keep being watched: they are only forgotten when it is known that
// they are gone.
func (c *collector) discover(ctx context.Context, _ struct{}) error {
	served, err := kinds.Served(c.env.Client.Kubernetes.Discovery())
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return fmt.Errorf("finding out what to watch: %w", err)
	}
	if err != nil {
		klog.FromContext(ctx).Info("Some groups could not be discovered", "reason", err)
		served = union(served, c.monitors.list())
	}
	ended, watchErr := c.monitors.update(ctx, served)
	if watchErr != nil {
		klog.FromContext(ctx).Info("Some resources are not watched for garbage collection", "reason", watchErr)
	}
	for _, resource := range ended {
		for _, t := range c.graph.forget(resource) {
			c.queue.Add(t)
		}
	}
	return err
}

// union adds to served the kinds that were known before.
func union(served, known []kinds.Kind) []kinds.Kind {
	have := map[schema.GroupResource]bool{}
	for _, k := range served {
		have[k.Resource.GroupResource()] = true
	}
	for _, k := range known {
		if !have[k.Resource.GroupResource()] {
			served = append(served, k)
		}
	}
	return served
}
