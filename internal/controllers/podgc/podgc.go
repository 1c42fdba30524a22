// Package podgc deletes pods that nobody else will: those bound to nodes that
// are gone, those being deleted that never had a node or whose node is out of
// service, and the oldest of too many finished ones.
package podgc

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/pods"
	podutil "github.com/coracle-io/coracle/internal/pod"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	threshold := 12500
	return controller.Descriptor{
		Name:           "pod-garbage-collector-controller",
		Aliases:        []string{"podgc"},
		ServiceAccount: "pod-garbage-collector",
		EventSource:    "pod-garbage-collector",
		AddFlags: func(fs *pflag.FlagSet) {
			fs.IntVar(&threshold, "terminated-pod-gc-threshold", threshold, "Number of terminated pods that can exist before the terminated pod garbage collector starts deleting terminated pods. If <= 0, the terminated pod garbage collector is disabled.")
		},
		New: func(env *controller.Env) (controller.Controller, error) { return newController(env, threshold) },
	}
}

// quarantine is how long a pod's node must have been missing before the pod
// is taken for an orphan: a new node's pods may be seen before the node.
const quarantine = 40 * time.Second

// tooMany is the key under which the number of finished pods is checked.
var tooMany = controller.Key{}

type collector struct {
	env     *controller.Env
	kube    kubernetes.Interface
	pods    cache.SharedIndexInformer
	nodes   corelisters.NodeLister
	queue   *controller.Queue[controller.Key]
	ceiling int

	// mu guards finished, the keys of the pods that have finished.
	mu       sync.Mutex
	finished sets.Set[controller.Key]
}

func newController(env *controller.Env, threshold int) (controller.Controller, error) {
	core := env.Client.Informers.Core().V1()
	c := &collector{
		env:      env,
		kube:     env.Client.Kubernetes,
		pods:     core.Pods().Informer(),
		nodes:    core.Nodes().Lister(),
		ceiling:  threshold,
		finished: sets.New[controller.Key](),
	}
	c.queue = controller.NewQueue("orphaned_pods_nodes", c.sync)
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
	case outOfService(new):
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
		c.count(cache.MetaObjectToName(old), false)
		return
	}
	key := cache.MetaObjectToName(new)
	c.count(key, podutil.IsFinished(new))
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
	switch lost := apierrors.IsNotFound(err); {
	case lost && bound:
		c.queue.AddAfter(key, quarantine)
	case !lost && deleted:
		c.queue.Add(key)
	}
}

// count keeps the set of finished pods and has it checked when it grows past
// the threshold.
func (c *collector) count(key controller.Key, finished bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !finished {
		c.finished.Delete(key)
		return
	}
	c.finished.Insert(key)
	if c.ceiling > 0 && c.finished.Len() > c.ceiling {
		c.queue.Add(tooMany)
	}
}

func (c *collector) sync(ctx context.Context, key controller.Key) error {
	if key == tooMany {
		return c.trim(ctx)
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
	reason, condition := verdict(pod, node)
	if reason == "" {
		return nil
	}
	klog.FromContext(ctx).V(2).Info("Deleting pod", "pod", klog.KObj(pod), "why", reason)
	return c.remove(ctx, pod, condition)
}

// verdict says why a pod must be deleted by force, or "". node is the pod's
// node as it is now, nil if there is none.
func verdict(pod *v1.Pod, node *v1.Node) (reason string, condition *v1.PodCondition) {
	switch {
	case pod.Spec.NodeName == "" && pod.DeletionTimestamp != nil:
		return "it is being deleted and was never scheduled", nil
	case pod.Spec.NodeName == "":
		return "", nil
	case node == nil:
		return "its node is gone", &v1.PodCondition{
			Type:    v1.DisruptionTarget,
			Status:  v1.ConditionTrue,
			Reason:  "DeletionByPodGC",
			Message: "PodGC: node no longer exists",
		}
	case pod.DeletionTimestamp != nil && outOfService(node):
		return "it is being deleted and its node is out of service", nil
	}
	return "", nil
}

// outOfService reports whether a node is not ready and carries the taint
// node.kubernetes.io/out-of-service (KEP-2268).
func outOfService(node *v1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == v1.NodeReady && c.Status == v1.ConditionTrue {
			return false
		}
	}
	return slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool { return t.Key == v1.TaintNodeOutOfService })
}

// trim deletes the oldest finished pods above the threshold.
func (c *collector) trim(ctx context.Context) error {
	c.mu.Lock()
	keys := c.finished.UnsortedList()
	c.mu.Unlock()
	var finished []*v1.Pod
	for _, key := range keys {
		if o, exists, err := c.pods.GetIndexer().GetByKey(key.String()); err == nil && exists && o.(*v1.Pod).DeletionTimestamp == nil {
			finished = append(finished, o.(*v1.Pod))
		}
	}
	slices.SortFunc(finished, func(a, b *v1.Pod) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	extra := len(finished) - c.ceiling
	if extra <= 0 {
		return nil
	}
	klog.FromContext(ctx).Info("Deleting finished pods", "count", extra, "threshold", c.ceiling)
	return pods.All(finished[:extra], func(p *v1.Pod) error { return c.remove(ctx, p, nil) })
}

// remove marks a pod that has not finished as failed and deletes it at once.
func (c *collector) remove(ctx context.Context, pod *v1.Pod, condition *v1.PodCondition) error {
	if !podutil.IsFinished(pod) {
		status := map[string]any{"phase": v1.PodFailed}
		if condition != nil {
			condition.LastTransitionTime = metav1.Now()
			status["conditions"] = []v1.PodCondition{*condition}
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
		if err != nil {
			return err
		}
		_, err = c.kube.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		if err != nil {
			return ignoreGone(err)
		}
	}
	options := metav1.NewDeleteOptions(0)
	options.Preconditions = &metav1.Preconditions{UID: &pod.UID}
	return ignoreGone(c.kube.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *options))
}

// ignoreGone drops the errors that say that the pod of that UID is gone.
func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
