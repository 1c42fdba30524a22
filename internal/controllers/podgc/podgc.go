// Package podgc is the pod garbage collector. It deletes pods that are bound to deleted
// nodes, terminating pods that are unscheduled or whose node is out of service, and
// finished pods above a threshold, evicted and old ones first.
package podgc

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/pods"
	"github.com/coracle-io/coracle/internal/flagvalue"
	"github.com/coracle-io/coracle/internal/nodestatus"
	"github.com/coracle-io/coracle/internal/order"
	"github.com/coracle-io/coracle/internal/poddisruption"
	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	threshold, counted := 12500, newCounts()
	return controller.Descriptor{
		Name:           "pod-garbage-collector-controller",
		Aliases:        []string{"podgc"},
		ServiceAccount: "pod-garbage-collector",
		EventSource:    "pod-garbage-collector",
		AddFlags: func(fs *pflag.FlagSet) {
			fs.IntVar(&threshold, "terminated-pod-gc-threshold", threshold, "number of terminated pods above which the oldest are deleted; 0 or less keeps all")
			flagvalue.Is(fs, flagvalue.Number, "terminated-pod-gc-threshold")
		},
		New: func(env *controller.Env) (controller.Controller, error) {
			return newController(env, threshold, counted)
		},
	}
}

// quarantine is how long a node must have been missing before its pods are deleted. The
// informers may show a pod before its node.
const quarantine = 40 * time.Second

// thresholdKey returns the key for the check of the number of finished pods.
func thresholdKey() controller.Key { return controller.Key{} }

type collector struct {
	env       *controller.Env
	kube      kubernetes.Interface
	pods      cache.SharedIndexInformer
	nodes     corelisters.NodeLister
	queue     *controller.Queue[controller.Key]
	threshold int
	counts    *counts

	// mu guards finished, the keys of the finished pods.
	mu       sync.Mutex
	finished sets.Set[controller.Key]
}

func newController(env *controller.Env, threshold int, counted *counts) (controller.Controller, error) {
	if err := env.Expose(counted.deleted, counted.failed); err != nil {
		return nil, err
	}
	core := env.Client.Informers.Core().V1()
	c := &collector{
		env:       env,
		kube:      env.Client.Kubernetes,
		pods:      core.Pods().Informer(),
		nodes:     core.Nodes().Lister(),
		threshold: threshold,
		counts:    counted,
		finished:  sets.New[controller.Key](),
	}
	c.queue = controller.NewQueue(env.Queues, "orphaned_pods_nodes", c.sync)
	return c, env.Index(c.pods, pods.ByNode, pods.NodeKeys)
}

// Run implements controller.Controller.
func (c *collector) Run(ctx context.Context) error {
	return controller.Serve(ctx, []controller.Source{
		controller.On(c.env.Client.Informers.Core().V1().Nodes().Informer(), c.nodeChanged),
		controller.On(c.pods, c.podChanged),
	}, c.queue.Workers(2))
}

func (c *collector) nodeChanged(old, new *v1.Node) {
	name, wait := "", time.Duration(0)
	switch {
	case new == nil:
		name, wait = old.Name, quarantine
	case isShutDown(new):
		name = new.Name
	default:
		return
	}
	affected, _ := pods.OnNode(c.pods, name)
	for _, p := range affected {
		c.queue.AddAfter(cache.MetaObjectToName(p), wait)
	}
}

func (c *collector) podChanged(old, new *v1.Pod) {
	if new == nil {
		c.setFinished(cache.MetaObjectToName(old), false)
		return
	}
	key := cache.MetaObjectToName(new)
	c.setFinished(key, podquery.IsFinished(new))
	if new.Spec.NodeName == "" {
		if new.DeletionTimestamp != nil {
			c.queue.Add(key)
		}
		return
	}
	deleted := new.DeletionTimestamp != nil && (old == nil || old.DeletionTimestamp == nil)
	bound := old == nil || old.Spec.NodeName == ""
	if !deleted && !bound {
		return
	}
	_, err := c.nodes.Get(new.Spec.NodeName)
	switch missing := apierrors.IsNotFound(err); {
	case missing && bound:
		c.queue.AddAfter(key, quarantine)
	case !missing && deleted:
		c.queue.Add(key)
	}
}

// setFinished updates the set of finished pods and enqueues thresholdKey if the set
// exceeds the threshold.
func (c *collector) setFinished(key controller.Key, finished bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !finished {
		c.finished.Delete(key)
		return
	}
	c.finished.Insert(key)
	if c.threshold > 0 && c.finished.Len() > c.threshold {
		c.queue.Add(thresholdKey())
	}
}

func (c *collector) sync(ctx context.Context, key controller.Key) error {
	if key == thresholdKey() {
		return c.deleteFinished(ctx)
	}
	o, exists, err := c.pods.GetIndexer().GetByKey(key.String())
	if err != nil || !exists {
		return err
	}
	pod := o.(*v1.Pod)
	var node *v1.Node
	if pod.Spec.NodeName != "" {
		if node, err = c.nodes.Get(pod.Spec.NodeName); apierrors.IsNotFound(err) {
			node, err = c.kube.CoreV1().Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if err != nil {
			node = nil
		}
	}
	reason, condition := deletionReason(pod, node)
	if reason == "" {
		return nil
	}
	klog.FromContext(ctx).V(2).Info("Deleting pod", "pod", klog.KObj(pod), "reason", reason)
	return c.remove(ctx, pod, reason, condition)
}

// deletionReason returns why a pod must be force deleted, one of upstream's reasons, or "", and the condition to set
// on the pod, or nil. node is the pod's node, or nil if it does not exist.
func deletionReason(pod *v1.Pod, node *v1.Node) (reason string, condition *v1.PodCondition) {
	switch {
	case pod.Spec.NodeName == "" && pod.DeletionTimestamp != nil:
		return reasonUnscheduled, nil
	case pod.Spec.NodeName == "":
		return "", nil
	case node == nil:
		target := podquery.DisruptionTarget(pod, "DeletionByPodGC", "PodGC: node no longer exists", metav1.Now())
		return reasonOrphaned, &target
	case pod.DeletionTimestamp != nil && isShutDown(node):
		return reasonOutOfService, nil
	}
	return "", nil
}

// isShutDown reports whether a node was shut down without notice (KEP-2268): it
// has the taint for that, and is not ready.
func isShutDown(node *v1.Node) bool {
	return nodestatus.IsOutOfService(node) && nodestatus.Ready(node) != v1.ConditionTrue
}

// isEvicted reports whether the kubelet has evicted a pod.
func isEvicted(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed && p.Status.Reason == "Evicted" }

// waitsForFinalizers reports whether a finished pod is deleted, so that it only waits
// for others to remove their finalizers.
func waitsForFinalizers(p *v1.Pod) bool {
	return p.DeletionTimestamp != nil && p.DeletionGracePeriodSeconds != nil && *p.DeletionGracePeriodSeconds == 0 && len(p.Finalizers) > 0
}

// deleteFinished deletes finished pods above the threshold: evicted ones, and then the
// oldest. Those that wait for finalizers count, but are not deleted again.
func (c *collector) deleteFinished(ctx context.Context) error {
	c.mu.Lock()
	keys := c.finished.UnsortedList()
	c.mu.Unlock()
	count := 0
	var finished []*v1.Pod
	for _, key := range keys {
		o, exists, err := c.pods.GetIndexer().GetByKey(key.String())
		if err != nil || !exists {
			continue
		}
		count++
		if p := o.(*v1.Pod); !waitsForFinalizers(p) {
			finished = append(finished, p)
		}
	}
	slices.SortFunc(finished, func(a, b *v1.Pod) int {
		return cmp.Or(order.FalseFirst(!isEvicted(a), !isEvicted(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	extra := min(count-c.threshold, len(finished))
	if extra <= 0 {
		return nil
	}
	klog.FromContext(ctx).Info("Deleting finished pods", "count", extra, "threshold", c.threshold)
	return supervise.Each(finished[:extra], func(p *v1.Pod) error { return c.remove(ctx, p, reasonTerminated, nil) })
}

// remove sets the phase of an unfinished pod to Failed and deletes it without a grace
// period.
func (c *collector) remove(ctx context.Context, pod *v1.Pod, reason string, condition *v1.PodCondition) error {
	var status v1.PodStatus
	if !podquery.IsFinished(pod) {
		status.Phase = v1.PodFailed
		if condition != nil {
			status.Conditions = []v1.PodCondition{*condition}
		}
	}
	c.counts.deleted.WithLabelValues(pod.Namespace, reason).Inc()
	_, err := poddisruption.Delete(ctx, c.kube, pod, status, *metav1.NewDeleteOptions(0))
	if err != nil {
		c.counts.failed.WithLabelValues(pod.Namespace, reason).Inc()
	}
	return err
}
