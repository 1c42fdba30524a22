// Package podautoscaler is the horizontal pod autoscaler controller. It sets the
// replicas of what HorizontalPodAutoscalers refer to, from metrics:
//
//	metrics APIs ──► samples ──► replicas for each metric ──► the most ──► limits, history ──► Scale
//	  (sources)    (groupPods)    (metricReplicas, objectReplicas)             (outcome)         (targets)
//
// The decision is pure: metric.go asks a source and computes proposals, and
// limits.go bounds them. https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/
// describes both.
package podautoscaler

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/spf13/pflag"
	autoscaling "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery/cached/memory"
	autoscalinglisters "k8s.io/client-go/listers/autoscaling/v2"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/pods"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/supervise"
)

// options are the controller's flags.
type options struct {
	workers       int
	period        time.Duration // between two decisions on an autoscaler
	stabilization time.Duration
	tolerance     float64
	readiness     readiness // without the time
}

func defaultOptions() options {
	return options{
		workers: 5, period: 15 * time.Second, stabilization: 5 * time.Minute, tolerance: 0.1,
		readiness: readiness{initialization: 5 * time.Minute, delay: 30 * time.Second},
	}
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	const prefix = "horizontal-pod-autoscaler-"
	controller.WorkersFlag(&o.workers, "concurrent-horizontal-pod-autoscaler-syncs", "horizontal pod autoscalers")(fs)
	fs.DurationVar(&o.period, prefix+"sync-period", o.period, "time between two decisions on the replicas of a horizontal pod autoscaler")
	fs.DurationVar(&o.stabilization, prefix+"downscale-stabilization", o.stabilization, "how long horizontal pod autoscalers without a window of their own have recommended fewer replicas before replicas are removed")
	fs.Float64Var(&o.tolerance, prefix+"tolerance", o.tolerance, "least change of the ratio of a metric to its target (from 1.0) for which the replicas change")
	fs.DurationVar(&o.readiness.initialization, prefix+"cpu-initialization-period", o.readiness.initialization, "time after the start of a pod in which its CPU counts only while it is ready")
	fs.DurationVar(&o.readiness.delay, prefix+"initial-readiness-delay", o.readiness.delay, "time after the start of a pod in which changes of its readiness are its initial ones")
}

func (o *options) validate() error {
	switch {
	case o.period <= 0:
		return errors.New("--horizontal-pod-autoscaler-sync-period must be above 0")
	case o.stabilization < 0 || o.readiness.initialization < 0 || o.readiness.delay < 0:
		return errors.New("the times of --horizontal-pod-autoscaler-... must not be below 0")
	case o.tolerance < 0:
		return errors.New("--horizontal-pod-autoscaler-tolerance must not be below 0")
	}
	return nil
}

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	o, counted := defaultOptions(), newCounts()
	return controller.Descriptor{
		Name:           "horizontal-pod-autoscaler-controller",
		Aliases:        []string{"horizontalpodautoscaling"},
		ServiceAccount: "horizontal-pod-autoscaler",
		EventSource:    "horizontal-pod-autoscaler",
		AddFlags:       o.addFlags,
		Validate:       o.validate,
		New: func(env *controller.Env) (controller.Controller, error) {
			if err := env.Expose(counted.collectors()...); err != nil {
				return nil, err
			}
			discovered := memory.NewMemCacheClient(env.Client.Kubernetes.Discovery())
			mapper := restmapper.NewDeferredDiscoveryRESTMapper(discovered)
			metrics, err := newAPIs(env.Client, mapper)
			if err != nil {
				return nil, err
			}
			return newController(env, o, counted, metrics, &targets{mapper, env.Client.Dynamic}, func() {
				mapper.Reset()
				metrics.versions.Invalidate()
			})
		},
	}
}

// autoscaler is the controller.
type autoscaler struct {
	env     *controller.Env
	options options
	counts  *counts
	metrics source
	targets *targets
	refresh func() // forgets which resources and metrics APIs are served
	pods    cache.SharedIndexInformer
	hpas    autoscalinglisters.HorizontalPodAutoscalerLister
	queue   *controller.Queue[controller.Key]

	mu        sync.Mutex                   // guards the maps and indexes
	known     map[string]map[string]*known // by namespace and name
	selectors map[string]*selectorIndex    // by namespace
}

// known holds the controller's state of an autoscaler. Only the worker of its
// key uses it.
type known struct {
	history history
	zeroed  bool // this controller has set the replicas to zero
	// written is the resource version of the last status that was written, until the
	// cache shows it.
	written string
}

func newController(env *controller.Env, o options, counted *counts, metrics source, targets *targets, refresh func()) (controller.Controller, error) {
	c := &autoscaler{
		env: env, options: o, counts: counted, metrics: metrics, targets: targets, refresh: refresh,
		pods: env.Client.Informers.Core().V1().Pods().Informer(),
		hpas: env.Client.Informers.Autoscaling().V2().HorizontalPodAutoscalers().Lister(), known: map[string]map[string]*known{},
		selectors: map[string]*selectorIndex{},
	}
	c.queue = controller.NewQueue(env.Queues, "horizontalpodautoscaler", c.sync)
	return c, env.Index(c.pods, pods.ByLabel, pods.LabelKeys)
}

// refreshPeriod is how long it is remembered which resources are served.
const refreshPeriod = 30 * time.Second

// Run implements controller.Controller.
func (c *autoscaler) Run(ctx context.Context) error {
	return controller.Serve(ctx, []controller.Source{
		controller.Reads(c.pods),
		controller.On(c.env.Client.Informers.Autoscaling().V2().HorizontalPodAutoscalers().Informer(), c.changed),
	}, c.queue.Workers(c.options.workers), func(ctx context.Context) error {
		supervise.Every(ctx, refreshPeriod, c.refresh)
		return nil
	})
}

// changed decides at once on autoscalers that are new or whose spec changes,
// and forgets those that are gone.
func (c *autoscaler) changed(old, hpa *autoscaling.HorizontalPodAutoscaler) {
	switch {
	case hpa == nil:
		c.forget(cache.MetaObjectToName(old))
	case old == nil || !equality.Semantic.DeepEqual(&old.Spec, &hpa.Spec):
		c.queue.Add(cache.MetaObjectToName(hpa))
	}
}

func (c *autoscaler) forget(key controller.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known[key.Namespace][key.Name] == nil {
		return
	}
	delete(c.known[key.Namespace], key.Name)
	if x := c.selectors[key.Namespace]; x != nil {
		x.remove(key.Name)
	}
	if len(c.known[key.Namespace]) == 0 {
		delete(c.known, key.Namespace)
		delete(c.selectors, key.Namespace)
	}
	c.counts.autoscalers.Dec()
	c.counts.desired.DeleteLabelValues(key.Namespace, key.Name)
}

func (c *autoscaler) remembered(key controller.Key) *known {
	c.mu.Lock()
	defer c.mu.Unlock()
	in := c.known[key.Namespace]
	if in == nil {
		in = map[string]*known{}
		c.known[key.Namespace] = in
	}
	k := in[key.Name]
	if k == nil {
		k = &known{}
		in[key.Name] = k
		c.counts.autoscalers.Inc()
	}
	return k
}

// sync decides on an autoscaler now, and again after the period. Failures wait
// for the period, too: retrying earlier would not help.
func (c *autoscaler) sync(ctx context.Context, key controller.Key) error {
	hpa, err := c.hpas.HorizontalPodAutoscalers(key.Namespace).Get(key.Name)
	if err != nil {
		c.forget(key) // an earlier sync may have ended after the deletion
		return nil
	}
	k := c.remembered(key)
	if c.env.Features.Enabled(feature.StaleControllerConsistencyHPA) && !k.isShown(hpa) {
		c.counts.skips.WithLabelValues(autoscaling.GroupName, "horizontalpodautoscalers").Inc()
		return controller.ErrStale
	}
	c.queue.AddAfter(key, c.options.period)
	err = c.reconcile(ctx, hpa, k)
	if err == nil || apierrors.IsConflict(err) || ctx.Err() != nil {
		return err
	}
	klog.FromContext(ctx).V(2).Info("Cannot scale", "horizontalPodAutoscaler", key, "err", err)
	return nil
}

// isShown reports whether a cached autoscaler is as new as the last status that was
// written for it.
func (k *known) isShown(hpa *autoscaling.HorizontalPodAutoscaler) bool {
	if order, err := resourceversion.CompareResourceVersion(hpa.ResourceVersion, k.written); err == nil && order < 0 {
		return false
	}
	k.written = ""
	return true
}

// sharing returns the autoscalers whose targets have pods with the labels of these pods,
// and records the selector of one of them.
func (c *autoscaler) sharing(of controller.Key, selector labels.Selector, pods []*v1.Pod) []controller.Key {
	distinct := distinctLabels(pods)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known[of.Namespace][of.Name] == nil { // it was deleted meanwhile
		return nil
	}
	x := c.selectors[of.Namespace]
	if x == nil {
		x = newSelectorIndex()
		c.selectors[of.Namespace] = x
	}
	x.set(of.Name, selector)
	names := sets.New[string]()
	for _, set := range distinct {
		x.matching(set, names)
	}
	found := make([]controller.Key, 0, len(names))
	for _, name := range sets.List(names) {
		found = append(found, controller.Key{Namespace: of.Namespace, Name: name})
	}
	return found
}
