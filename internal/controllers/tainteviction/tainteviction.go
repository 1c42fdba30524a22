// Package tainteviction deletes pods that do not tolerate a NoExecute taint
// of their node, or tolerate it only for a time that is over.
package tainteviction

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/pods"
	podutil "github.com/coracle-io/coracle/internal/pod"
	"github.com/coracle-io/coracle/internal/timespan"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Name:           "taint-eviction-controller",
		ServiceAccount: "node-controller",
		EventSource:    "taint-eviction-controller",
		New:            newController,
	}
}

// workers is how many pods are deleted at once.
const workers = 8

type evictor struct {
	env   *controller.Env
	kube  kubernetes.Interface
	nodes corelisters.NodeLister
	pods  cache.SharedIndexInformer
	queue *controller.Queue[controller.Key]

	// mu guards pending, the pods that wait for their toleration to end.
	mu      sync.Mutex
	pending map[controller.Key]bool
}

func newController(env *controller.Env) (controller.Controller, error) {
	core := env.Client.Informers.Core().V1()
	c := &evictor{
		env: env, kube: env.Client.Kubernetes, nodes: core.Nodes().Lister(), pods: core.Pods().Informer(),
		pending: map[controller.Key]bool{},
	}
	c.queue = controller.NewQueue("noexec_taint_pod", c.sync)
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
		c.isPending(key, false)
		return err
	}
	pod := o.(*v1.Pod)
	if pod.DeletionTimestamp != nil || pod.Spec.NodeName == "" {
		c.isPending(key, false)
		return nil
	}
	node, err := c.nodes.Get(pod.Spec.NodeName)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	now := time.Now()
	at, evict := evictionTime(pod, noExecute(node), now)
	switch {
	case !evict:
		if c.isPending(key, false) {
			c.env.Events.Eventf(pod, v1.EventTypeNormal, "TaintManagerEviction", "Cancelling deletion of Pod %s", key)
		}
		return nil
	case at.After(now):
		c.isPending(key, true)
		c.queue.AddAfter(key, at.Sub(now))
		return nil
	}
	c.isPending(key, false)
	return c.evict(ctx, pod)
}

// isPending notes whether a pod waits for its eviction and returns what was
// noted before.
func (c *evictor) isPending(key controller.Key, pending bool) (before bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before = c.pending[key]
	if pending {
		c.pending[key] = true
	} else {
		delete(c.pending, key)
	}
	return before
}

func noExecute(node *v1.Node) []v1.Taint {
	return slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t v1.Taint) bool { return t.Effect != v1.TaintEffectNoExecute })
}

// evictionTime says when a pod has to leave a node with those NoExecute
// taints. The time that a toleration grants runs from when the taint was
// added or the pod came to the node, whichever is later.
func evictionTime(pod *v1.Pod, taints []v1.Taint, now time.Time) (at time.Time, evict bool) {
	for _, taint := range taints {
		granted, forever, tolerated := tolerance(pod, taint)
		if !tolerated {
			return now, true
		}
		if forever {
			continue
		}
		from := arrival(pod)
		if taint.TimeAdded != nil && taint.TimeAdded.After(from) {
			from = taint.TimeAdded.Time
		}
		if end := from.Add(granted); !evict || end.Before(at) {
			at, evict = end, true
		}
	}
	return at, evict
}

// tolerance is how long a pod tolerates a taint: the shortest time that any
// of its matching tolerations grants.
func tolerance(pod *v1.Pod, taint v1.Taint) (granted time.Duration, forever, tolerated bool) {
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

// arrival is when a pod was bound to its node, as far as its status tells.
func arrival(pod *v1.Pod) time.Time {
	if c := podutil.Condition(&pod.Status, v1.PodScheduled); c != nil && c.Status == v1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return pod.CreationTimestamp.Time
}

func (c *evictor) evict(ctx context.Context, pod *v1.Pod) error {
	klog.FromContext(ctx).Info("Deleting pod, its node has a taint that it does not tolerate", "pod", klog.KObj(pod), "node", pod.Spec.NodeName)
	c.env.Events.Eventf(pod, v1.EventTypeNormal, "TaintManagerEviction", "Marking for deletion Pod %s/%s", pod.Namespace, pod.Name)
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status": map[string]any{"conditions": []v1.PodCondition{{
			Type: v1.DisruptionTarget, Status: v1.ConditionTrue, LastTransitionTime: metav1.Now(),
			Reason: "DeletionByTaintManager", Message: "Taint manager: deleting due to NoExecute taint",
		}}},
	})
	if err != nil {
		return err
	}
	client := c.kube.CoreV1().Pods(pod.Namespace)
	if _, err := client.Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return ignoreGone(err)
	}
	return ignoreGone(client.Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}))
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
