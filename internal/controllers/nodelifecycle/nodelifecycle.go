// Package nodelifecycle notices nodes whose kubelet is silent, and keeps the
// taints that follow from nodes' conditions.
//
//	lease, status ──▶ sign of life ──silent for --node-monitor-grace-period──▶ Ready=Unknown
//	conditions ──▶ taints NoSchedule at once, NoExecute at each zone's rate
package nodelifecycle

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/pflag"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/pods"
	podutil "github.com/coracle-io/coracle/internal/pod"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	o := defaultOptions()
	return controller.Descriptor{
		Name:           "node-lifecycle-controller",
		Aliases:        []string{"nodelifecycle"},
		ServiceAccount: "node-controller",
		EventSource:    "node-controller",
		AddFlags:       o.addFlags,
		New:            func(env *controller.Env) (controller.Controller, error) { return newController(env, o) },
	}
}

type options struct {
	monitorGracePeriod, startupGracePeriod time.Duration
	rates                                  rates
}

func defaultOptions() *options {
	return &options{
		monitorGracePeriod: 50 * time.Second,
		startupGracePeriod: time.Minute,
		rates:              rates{normal: 0.1, secondary: 0.01, threshold: 0.55, large: 50},
	}
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&o.monitorGracePeriod, "node-monitor-grace-period", o.monitorGracePeriod, "Amount of time which we allow running Node to be unresponsive before marking it unhealthy.")
	fs.DurationVar(&o.startupGracePeriod, "node-startup-grace-period", o.startupGracePeriod, "Amount of time which we allow starting Node to be unresponsive before marking it unhealthy.")
	fs.Float32Var(&o.rates.normal, "node-eviction-rate", o.rates.normal, "Number of nodes per second on which pods are deleted in case of node failure when a zone is healthy.")
	fs.Float32Var(&o.rates.secondary, "secondary-node-eviction-rate", o.rates.secondary, "Number of nodes per second on which pods are deleted in case of node failure when a zone is unhealthy. Taken as 0 in clusters not larger than --large-cluster-size-threshold.")
	fs.Float32Var(&o.rates.threshold, "unhealthy-zone-threshold", o.rates.threshold, "Fraction of Nodes in a zone which needs to be not Ready (minimum 3) for zone to be treated as unhealthy.")
	fs.IntVar(&o.rates.large, "large-cluster-size-threshold", o.rates.large, "Number of nodes from which the cluster is treated as large for the eviction logic purposes.")
}

// workers is how many nodes are looked at at once.
const workers = 8

type nodes struct {
	env     *controller.Env
	options *options
	kube    kubernetes.Interface
	pods    cache.SharedIndexInformer
	queue   *controller.Queue[string]

	mu    sync.Mutex // guards all below
	signs map[string]*sign
	zones map[string]*zone
	known map[string]membership
	// granted are the nodes whose turn to be evicted has come, until they
	// are ready again.
	granted map[string]bool
}

// membership is how a node is counted in its zone.
type membership struct {
	zone  string
	ready bool
}

func newController(env *controller.Env, o *options) (controller.Controller, error) {
	core := env.Client.Informers.Core().V1()
	c := &nodes{
		env:     env,
		options: o,
		kube:    env.Client.Kubernetes,
		pods:    core.Pods().Informer(),
		signs:   map[string]*sign{},
		zones:   map[string]*zone{},
		known:   map[string]membership{},

		granted: map[string]bool{},
	}
	c.queue = controller.NewQueue("node_lifecycle_controller", controller.Existing[string](core.Nodes().Informer(), c.sync))
	return c, env.Index(c.pods, pods.ByNode, pods.NodeKeys)
}

// Run implements controller.Controller.
func (c *nodes) Run(ctx context.Context) error {
	informers := c.env.Client.Informers
	return controller.Serve(ctx, []controller.Source{
		controller.On(informers.Core().V1().Nodes().Informer(), c.nodeChanged),
		controller.On(informers.Coordination().V1().Leases().Informer(), func(_, lease *coordinationv1.Lease) {
			if lease != nil && lease.Namespace == v1.NamespaceNodeLease && lease.Spec.RenewTime != nil {
				c.hear(lease.Name, nil, lease.Spec.RenewTime)
			}
		}),
		controller.Reads(c.pods),
	}, c.queue.Workers(workers))
}

func (c *nodes) nodeChanged(old, new *v1.Node) {
	if new == nil {
		c.forget(old.Name)
		return
	}
	c.hear(new.Name, new, nil)
	if old == nil {
		c.env.Events.Eventf(reference(new), v1.EventTypeNormal, "RegisteredNode", "Node %s event: Registered Node %s in Controller", new.Name, new.Name)
	}
	if c.count(new) {
		c.wakeAll()
	}
	c.queue.Add(new.Name)
}

func (c *nodes) hear(name string, node *v1.Node, renewed *metav1.MicroTime) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.signs[name]
	if s == nil {
		s = &sign{}
		c.signs[name] = s
	}
	s.hear(node, renewed, time.Now())
}

// count keeps a node's zone up to date. It reports whether that changed the
// disruption of any zone, and so what may be evicted.
func (c *nodes) count(node *v1.Node) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := membership{zoneOf(node), ready(node) == v1.ConditionTrue}
	before, seen := c.known[node.Name]
	if seen && before == now {
		return false
	}
	was := c.disruptions()
	if seen {
		c.leave(before)
	}
	z := c.zones[now.zone]
	if z == nil {
		z = &zone{}
		c.zones[now.zone] = z
	}
	if now.ready {
		z.ready++
	} else {
		z.lost++
	}
	c.known[node.Name] = now
	return !equality.Semantic.DeepEqual(was, c.disruptions())
}

func (c *nodes) leave(m membership) {
	z := c.zones[m.zone]
	if m.ready {
		z.ready--
	} else {
		z.lost--
	}
	if z.ready+z.lost == 0 {
		delete(c.zones, m.zone)
	}
}

func (c *nodes) disruptions() map[string]disruption {
	out := make(map[string]disruption, len(c.zones))
	for name, z := range c.zones {
		out[name] = z.disruption(c.options.rates.threshold)
	}
	return out
}

func (c *nodes) wakeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.known {
		c.queue.Add(name)
	}
}

func (c *nodes) forget(name string) {
	c.mu.Lock()
	m, seen := c.known[name]
	was := c.disruptions()
	if seen {
		c.leave(m)
	}
	delete(c.known, name)
	delete(c.signs, name)
	delete(c.granted, name)
	changed := !equality.Semantic.DeepEqual(was, c.disruptions())
	c.mu.Unlock()
	if changed {
		c.wakeAll()
	}
}

func (c *nodes) sync(ctx context.Context, node *v1.Node) error {
	node, err := c.monitor(ctx, node)
	if err != nil {
		return ignoreNotFound(err)
	}
	if ready(node) != v1.ConditionTrue {
		if err := c.markPods(ctx, node); err != nil {
			return err
		}
	}
	return ignoreNotFound(c.taint(ctx, node))
}

// monitor marks a node that has been silent for too long, and comes back when
// the next deadline is over. It returns the node as it is then.
func (c *nodes) monitor(ctx context.Context, node *v1.Node) (*v1.Node, error) {
	c.mu.Lock()
	var s sign
	if known := c.signs[node.Name]; known != nil {
		s = *known
	}
	c.mu.Unlock()
	now := time.Now()
	if left := deadline(node, s, c.options.monitorGracePeriod, c.options.startupGracePeriod).Sub(now); left > 0 {
		c.queue.AddAfter(node.Name, left)
		return node, nil
	}
	conditions := silence(node, now)
	if equality.Semantic.DeepEqual(conditions, node.Status.Conditions) {
		return node, nil
	}
	wasReady := ready(node) == v1.ConditionTrue
	lost := node.DeepCopy()
	lost.Status.Conditions = conditions
	klog.FromContext(ctx).Info("Node is silent, its status is unknown", "node", node.Name, "since", s.seen)
	updated, err := c.kube.CoreV1().Nodes().UpdateStatus(ctx, lost, metav1.UpdateOptions{})
	if err == nil && wasReady {
		c.env.Events.Eventf(reference(node), v1.EventTypeNormal, "NodeNotReady", "Node %s status is now: NodeNotReady", node.Name)
	}
	if err == nil && c.count(updated) {
		c.wakeAll()
	}
	return updated, err
}

// markPods sets the condition Ready of a lost node's pods to false, so that
// Services stop sending to them.
func (c *nodes) markPods(ctx context.Context, node *v1.Node) error {
	affected, err := pods.OnNode(c.pods, node.Name)
	if err != nil {
		return err
	}
	return pods.All(affected, func(p *v1.Pod) error {
		if !podutil.IsReady(p) {
			return nil
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": p.UID},
			"status": map[string]any{"conditions": []map[string]any{{
				"type": v1.PodReady, "status": v1.ConditionFalse, "lastTransitionTime": metav1.Now(),
			}}},
		})
		if err != nil {
			return err
		}
		_, err = c.kube.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("marking pod %s/%s not ready: %w", p.Namespace, p.Name, err)
		}
		c.env.Events.Event(p, v1.EventTypeWarning, "NodeNotReady", "Node is not ready")
		return nil
	})
}

// taint writes the taints that follow from a node's conditions.
func (c *nodes) taint(ctx context.Context, node *v1.Node) error {
	evict, wait := c.mayEvict(node)
	if wait > 0 {
		c.queue.AddAfter(node.Name, wait)
	}
	want := taints(node, evict, time.Now())
	if equality.Semantic.DeepEqual(want, node.Spec.Taints) {
		return nil
	}
	if want == nil {
		want = []v1.Taint{}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": node.ResourceVersion},
		"spec":     map[string]any{"taints": want},
	})
	if err != nil {
		return err
	}
	_, err = c.kube.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// mayEvict says whether a node that is not ready should have its pods driven
// away now, or else after how long to ask again (0: when zones change).
func (c *nodes) mayEvict(node *v1.Node) (evict bool, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ready(node) == v1.ConditionTrue {
		delete(c.granted, node.Name)
		return false, 0
	}
	z := c.zones[zoneOf(node)]
	if z == nil {
		return false, 0
	}
	lost := everythingLost(c.zones, c.options.rates.threshold)
	if evicting(node) || c.granted[node.Name] {
		return !lost, 0
	}
	wait, never := z.turn(c.options.rates.rate(z, lost), time.Now())
	if wait > 0 || never {
		return false, wait
	}
	c.granted[node.Name] = true
	return true, 0
}

// reference names a node in an event.
func reference(node *v1.Node) *v1.ObjectReference {
	return &v1.ObjectReference{Kind: "Node", Name: node.Name, UID: node.UID, APIVersion: "v1"}
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
