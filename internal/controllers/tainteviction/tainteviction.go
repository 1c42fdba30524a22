// Package tainteviction is the taint eviction controller. It deletes pods that
// do not tolerate a NoExecute taint of their node, and pods whose
// tolerationSeconds for such a taint have passed.
package tainteviction

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/pods"
	"github.com/coracle-io/coracle/internal/nativehistogram"
	"github.com/coracle-io/coracle/internal/poddisruption"
	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/timespan"
	"github.com/coracle-io/coracle/internal/wallclock"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	counted := newCounts()
	return controller.Descriptor{
		Name:           "taint-eviction-controller",
		ServiceAccount: "node-controller",
		EventSource:    "taint-eviction-controller",
		New:            func(env *controller.Env) (controller.Controller, error) { return newController(env, counted) },
	}
}

// counts are the controller's metrics, by upstream's names.
type counts struct {
	deletions prometheus.Counter
	latency   prometheus.Histogram
}

func newCounts() *counts {
	return &counts{
		deletions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "taint_eviction_controller_pod_deletions_total",
			Help: "[ALPHA] Total number of Pods deleted by TaintEvictionController since its start.",
		}),
		latency: nativehistogram.New(prometheus.HistogramOpts{
			Name:    "taint_eviction_controller_pod_deletion_duration_seconds",
			Help:    "[ALPHA] Latency, in seconds, between the time when a taint effect has been activated for the Pod and its deletion via TaintEvictionController.",
			Buckets: []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240},
		}),
	}
}

// workers is the number of pods that are deleted concurrently.
const workers = 8

type evictor struct {
	env    *controller.Env
	kube   kubernetes.Interface
	counts *counts
	nodes  corelisters.NodeLister
	pods   cache.SharedIndexInformer
	queue  *controller.Queue[controller.Key]

	pending controller.Marks[controller.Key]  // pods with a scheduled eviction
	bound   wallclock.Moments[controller.Key] // when they were bound

	mu sync.Mutex // guards added
	// added holds when the NoExecute taints of each node were added, by the monotonic clock
	// (see wallclock.Moments). Those without timeAdded were when they were first observed.
	added map[string]map[taintKey]time.Time
}

// taintKey identifies a taint of a node and when it was added.
type taintKey struct {
	taint v1.Taint // without timeAdded
	added int64    // in seconds since 1970; 0 without timeAdded
}

func keyOf(t v1.Taint) taintKey {
	key := taintKey{taint: t}
	if t.TimeAdded != nil {
		key.taint.TimeAdded, key.added = nil, t.TimeAdded.Unix()
	}
	return key
}

// timeAdded returns when a taint was added that is observed for the first time.
func timeAdded(t v1.Taint, now time.Time) time.Time {
	if t.TimeAdded == nil {
		return now
	}
	return wallclock.Past(t.TimeAdded.Time, now)
}

func newController(env *controller.Env, counted *counts) (controller.Controller, error) {
	if err := env.Expose(counted.deletions, counted.latency); err != nil {
		return nil, err
	}
	core := env.Client.Informers.Core().V1()
	c := &evictor{
		env: env, kube: env.Client.Kubernetes, counts: counted, nodes: core.Nodes().Lister(), pods: core.Pods().Informer(),
		added: map[string]map[taintKey]time.Time{},
	}
	c.queue = controller.NewQueue(env.Queues, "noexec_taint_pod", c.sync)
	return c, env.Index(c.pods, pods.ByNode, pods.NodeKeys)
}

// Run implements controller.Controller.
func (c *evictor) Run(ctx context.Context) error {
	return controller.Serve(ctx, []controller.Source{
		controller.On(c.env.Client.Informers.Core().V1().Nodes().Informer(), c.nodeChanged),
		controller.On(c.pods, func(old, new *v1.Pod) {
			if new != nil && new.Spec.NodeName != "" && (old == nil || old.Spec.NodeName == "" ||
				!equality.Semantic.DeepEqual(old.Spec.Tolerations, new.Spec.Tolerations)) {
				c.queue.Add(cache.MetaObjectToName(new))
			}
		}),
	}, c.queue.Workers(workers))
}

func (c *evictor) nodeChanged(old, new *v1.Node) {
	c.observeTaints(old, new, time.Now())
	if new == nil || old != nil && equality.Semantic.DeepEqual(old.Spec.Taints, new.Spec.Taints) {
		return
	}
	if len(noExecute(new)) == 0 && (old == nil || len(noExecute(old)) == 0) {
		return
	}
	affected, _ := pods.OnNode(c.pods, new.Name)
	for _, p := range affected {
		c.queue.Add(cache.MetaObjectToName(p))
	}
}

func (c *evictor) sync(ctx context.Context, key controller.Key) error {
	o, exists, err := c.pods.GetIndexer().GetByKey(key.String())
	if err != nil || !exists {
		c.cancel(key)
		return err
	}
	pod := o.(*v1.Pod)
	if pod.DeletionTimestamp != nil || pod.Spec.NodeName == "" {
		c.cancel(key)
		return nil
	}
	node, err := c.nodes.Get(pod.Spec.NodeName)
	if apierrors.IsNotFound(err) {
		c.bound.Forget(key)
		return nil
	}
	if err != nil {
		return err
	}
	now := time.Now()
	bound := c.bound.At(key, bindingTime(pod), now)
	at, evict := evictionTime(pod, bound, c.noExecuteTaints(node, now), now)
	switch {
	case !evict:
		if c.cancel(key) {
			c.env.Events.Eventf(pod, v1.EventTypeNormal, "TaintManagerEviction", "Cancelling deletion of Pod %s", key)
		}
		return nil
	case at.After(now):
		c.pending.Set(key, true)
		c.queue.AddAfter(key, at.Sub(now))
		return nil
	}
	if err := c.checkTaints(ctx, pod, bound, now); err != nil {
		return controller.IgnoreNotFound(err)
	}
	c.pending.Set(key, false)
	err = c.evict(ctx, pod, at)
	if err == nil {
		c.bound.Forget(key)
	}
	return err
}

// cancel drops what is remembered of a pod with a scheduled eviction, and reports whether it
// had one.
func (c *evictor) cancel(key controller.Key) (scheduled bool) {
	c.bound.Forget(key)
	return c.pending.Set(key, false)
}

// checkTaints returns ErrStale if the stored node of a pod that is to be evicted now does not have the
// taints that the cache shows. An eviction cannot be undone.
func (c *evictor) checkTaints(ctx context.Context, pod *v1.Pod, bound, now time.Time) error {
	node, err := c.kube.CoreV1().Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if at, evict := evictionTime(pod, bound, c.noExecuteTaints(node, now), now); !evict || at.After(now) {
		return controller.ErrStale
	}
	return nil
}

// observeTaints updates added for a changed node. old is nil for an addition, new for a
// deletion.
func (c *evictor) observeTaints(old, new *v1.Node, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if new == nil {
		delete(c.added, old.Name)
		return
	}
	before, taints := c.added[new.Name], map[taintKey]time.Time{}
	for _, t := range noExecute(new) {
		at, known := before[keyOf(t)]
		if !known {
			at = timeAdded(t, now)
		}
		taints[keyOf(t)] = at
	}
	if len(taints) == 0 {
		delete(c.added, new.Name)
		return
	}
	c.added[new.Name] = taints
}

// noExecuteTaints returns the NoExecute taints of a node. Their timeAdded, which kubectl does
// not set, is a reading of the monotonic clock.
func (c *evictor) noExecuteTaints(node *v1.Node, now time.Time) []v1.Taint {
	c.mu.Lock()
	defer c.mu.Unlock()
	taints := noExecute(node)
	for i, t := range taints {
		at, known := c.added[node.Name][keyOf(t)]
		if !known {
			at = timeAdded(t, now)
		}
		taints[i].TimeAdded = &metav1.Time{Time: at}
	}
	return taints
}

func noExecute(node *v1.Node) []v1.Taint {
	return slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t v1.Taint) bool { return t.Effect != v1.TaintEffectNoExecute })
}

// evictionTime returns when a pod must be evicted from a node with these
// NoExecute taints. tolerationSeconds count from when the taint was added or the
// pod was bound, whichever is later.
func evictionTime(pod *v1.Pod, bound time.Time, taints []v1.Taint, now time.Time) (at time.Time, evict bool) {
	for _, taint := range taints {
		granted, forever, tolerated := tolerationTime(pod, taint)
		if !tolerated {
			return now, true
		}
		if forever {
			continue
		}
		from := bound
		if taint.TimeAdded != nil && taint.TimeAdded.After(from) {
			from = taint.TimeAdded.Time
		}
		if end := from.Add(granted); !evict || end.Before(at) {
			at, evict = end, true
		}
	}
	return at, evict
}

// tolerationTime returns how long a pod tolerates a taint, which is the minimum
// tolerationSeconds of its matching tolerations. Lt and Gt always count: the API
// server's gate decides which pods may have them.
func tolerationTime(pod *v1.Pod, taint v1.Taint) (granted time.Duration, forever, tolerated bool) {
	forever = true
	for i := range pod.Spec.Tolerations {
		t := &pod.Spec.Tolerations[i]
		if !t.ToleratesTaint(klog.Background(), &taint, true) {
			continue
		}
		tolerated = true
		if t.TolerationSeconds == nil {
			continue
		}
		if d := timespan.Seconds(max(0, *t.TolerationSeconds)); forever || d < granted {
			granted, forever = d, false
		}
	}
	return granted, forever && tolerated, tolerated
}

// bindingTime returns when a pod was bound to its node according to its
// PodScheduled condition, or its creation time without one.
func bindingTime(pod *v1.Pod) time.Time {
	if c := podquery.Condition(&pod.Status, v1.PodScheduled); c != nil && c.Status == v1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return pod.CreationTimestamp.Time
}

// evict deletes a pod. due is when it was to be deleted.
func (c *evictor) evict(ctx context.Context, pod *v1.Pod, due time.Time) error {
	klog.FromContext(ctx).Info("Deleting pod that does not tolerate a taint of its node", "pod", klog.KObj(pod), "node", pod.Spec.NodeName)
	c.env.Events.Eventf(pod, v1.EventTypeNormal, "TaintManagerEviction", "Marking for deletion Pod %s/%s", pod.Namespace, pod.Name)
	deleted, err := poddisruption.Evict(ctx, c.kube, pod, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
	if err != nil || !deleted {
		return err
	}
	c.counts.deletions.Inc()
	c.counts.latency.Observe(time.Since(due).Seconds())
	return nil
}
