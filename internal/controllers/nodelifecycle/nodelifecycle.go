// Package nodelifecycle is the node lifecycle controller. It detects nodes whose kubelet
// has stopped reporting, and taints nodes according to their conditions.
//
//	lease, status ──▶ heartbeat ──none for --node-monitor-grace-period──▶ Ready=Unknown
//	kubernetes.io/os and arch ──▶ their older names beta.kubernetes.io/os and arch
//	conditions ──▶ taints: NoSchedule at once, NoExecute at the eviction rate of the zone
package nodelifecycle

import (
	"context"
	"encoding/json"
	"errors"
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
	"github.com/coracle-io/coracle/internal/nodestatus"
	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	o, counted := defaultOptions(), newCounts()
	return controller.Descriptor{
		Name:           "node-lifecycle-controller",
		Aliases:        []string{"nodelifecycle"},
		ServiceAccount: "node-controller",
		EventSource:    "node-controller",
		AddFlags:       o.addFlags,
		New:            func(env *controller.Env) (controller.Controller, error) { return newController(env, o, counted) },
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
	fs.DurationVar(&o.monitorGracePeriod, "node-monitor-grace-period", o.monitorGracePeriod, "how long a running node may be unresponsive before it is marked unhealthy")
	fs.DurationVar(&o.startupGracePeriod, "node-startup-grace-period", o.startupGracePeriod, "how long a starting node may be unresponsive before it is marked unhealthy")
	fs.Float32Var(&o.rates.normal, "node-eviction-rate", o.rates.normal, "failed nodes per second whose pods are evicted in a healthy zone")
	fs.Float32Var(&o.rates.secondary, "secondary-node-eviction-rate", o.rates.secondary, "failed nodes per second whose pods are evicted in an unhealthy zone; 0 in clusters of at most --large-cluster-size-threshold nodes")
	fs.Float32Var(&o.rates.threshold, "unhealthy-zone-threshold", o.rates.threshold, "share of nodes that are not Ready, and at least 3, from which a zone is unhealthy")
	fs.IntVar(&o.rates.large, "large-cluster-size-threshold", o.rates.large, "number of nodes above which a cluster is large, for --secondary-node-eviction-rate")
}

// workers is the number of nodes that are synced concurrently.
const workers = 8

type nodes struct {
	env     *controller.Env
	options *options
	kube    kubernetes.Interface
	pods    cache.SharedIndexInformer
	queue   *controller.Queue[string]
	counts  *counts

	// podsMarked holds the unreachable nodes whose pods have been marked as not ready.
	podsMarked controller.Marks[string]

	mu     sync.Mutex // guards the following
	health map[string]*nodeHealth
	zones  map[string]*zone
	// members holds how each node is counted in its zone.
	members map[string]membership
	// evicting holds the nodes that got a NoExecute taint from the rate limiter and have
	// not been ready since.
	evicting map[string]bool
}

// membership describes how a node is counted in its zone.
type membership struct {
	zone            string
	ready, excluded bool
}

func newController(env *controller.Env, o *options, counted *counts) (controller.Controller, error) {
	if err := env.Expose(counted.collectors()...); err != nil {
		return nil, err
	}
	core := env.Client.Informers.Core().V1()
	c := &nodes{
		env:      env,
		options:  o,
		kube:     env.Client.Kubernetes,
		pods:     core.Pods().Informer(),
		counts:   counted,
		health:   map[string]*nodeHealth{},
		zones:    map[string]*zone{},
		members:  map[string]membership{},
		evicting: map[string]bool{},
	}
	c.queue = controller.NewQueue(env.Queues, "node_lifecycle_controller", controller.Existing[string](core.Nodes().Informer(), c.sync))
	return c, env.Index(c.pods, pods.ByNode, pods.NodeKeys)
}

// Run implements controller.Controller.
func (c *nodes) Run(ctx context.Context) error {
	informers := c.env.Client.Informers
	return controller.Serve(ctx, []controller.Source{
		controller.On(informers.Core().V1().Nodes().Informer(), c.nodeChanged),
		controller.On(informers.Coordination().V1().Leases().Informer(), func(_, lease *coordinationv1.Lease) {
			if lease != nil && lease.Namespace == v1.NamespaceNodeLease && lease.Spec.RenewTime != nil {
				c.observe(lease.Name, nil, lease.Spec.RenewTime)
			}
		}),
		controller.Reads(c.pods),
	}, c.queue.Workers(workers))
}

func (c *nodes) nodeChanged(old, new *v1.Node) {
	if new == nil {
		c.forget(old.Name)
		c.env.Events.Eventf(reference(old), v1.EventTypeNormal, "RemovingNode", "Node %s event: Removing Node %s from Controller", old.Name, old.Name)
		return
	}
	c.observe(new.Name, new, nil)
	if old == nil {
		c.env.Events.Eventf(reference(new), v1.EventTypeNormal, "RegisteredNode", "Node %s event: Registered Node %s in Controller", new.Name, new.Name)
	}
	if c.updateZone(new) {
		c.enqueueAll()
	}
	c.queue.Add(new.Name)
}

// observe records a heartbeat of a node. It ignores a lease whose node does not exist, which
// may be renewed after the node was deleted.
func (c *nodes) observe(name string, node *v1.Node, renewTime *metav1.MicroTime) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.health[name]
	if h == nil {
		if node == nil {
			return
		}
		h = &nodeHealth{}
		c.health[name] = h
	}
	h.observe(node, renewTime, time.Now())
}

// updateZone updates the zone of a node. It reports whether the state of a zone has
// changed, and so which nodes may be evicted.
func (c *nodes) updateZone(node *v1.Node) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, excluded := node.Labels[labelExcludeDisruption]
	now := membership{zoneOf(node), nodestatus.Ready(node) == v1.ConditionTrue, excluded}
	before, counted := c.members[node.Name]
	if counted && before == now {
		return false
	}
	oldStates := c.zoneStates()
	if counted {
		c.removeMember(before)
	}
	z := c.zones[now.zone]
	if z == nil {
		z = &zone{}
		c.zones[now.zone] = z
	}
	*z.members(now)++
	c.counts.show(now.zone, z)
	c.members[node.Name] = now
	return !equality.Semantic.DeepEqual(oldStates, c.zoneStates())
}

// removeMember removes a node from its zone. Callers hold mu.
func (c *nodes) removeMember(m membership) {
	z := c.zones[m.zone]
	*z.members(m)--
	if z.ready+z.notReady+z.excluded == 0 {
		delete(c.zones, m.zone)
	}
	c.counts.show(m.zone, z)
}

// zoneStates returns the states of all zones. Callers hold mu.
func (c *nodes) zoneStates() map[string]zoneState {
	out := make(map[string]zoneState, len(c.zones))
	for name, z := range c.zones {
		out[name] = z.state(c.options.rates.threshold)
	}
	return out
}

func (c *nodes) enqueueAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.members {
		c.queue.Add(name)
	}
}

func (c *nodes) forget(name string) {
	c.podsMarked.Set(name, false)
	c.mu.Lock()
	m, counted := c.members[name]
	oldStates := c.zoneStates()
	if counted {
		c.removeMember(m)
	}
	delete(c.members, name)
	delete(c.health, name)
	delete(c.evicting, name)
	changed := !equality.Semantic.DeepEqual(oldStates, c.zoneStates())
	c.mu.Unlock()
	if changed {
		c.enqueueAll()
	}
}

func (c *nodes) sync(ctx context.Context, node *v1.Node) error {
	// The health of a node matters more than its labels.
	return errors.Join(controller.IgnoreNotFound(c.keepHealth(ctx, node)), controller.IgnoreNotFound(c.labelPlatform(ctx, node)))
}

// keepHealth sets the conditions and taints of a node, and the conditions of its pods.
func (c *nodes) keepHealth(ctx context.Context, node *v1.Node) error {
	begin := time.Now()
	node, err := c.monitor(ctx, node)
	c.counts.update.Observe(time.Since(begin).Seconds())
	if err != nil {
		return err
	}
	// A kubelet that reports its node as not ready also reports the state of its pods.
	var failed error
	unreachable := nodestatus.Condition(node, v1.NodeReady) != nil && nodestatus.Ready(node) == v1.ConditionUnknown
	if marked := c.podsMarked.Set(node.Name, unreachable); unreachable && !marked {
		if failed = c.markPodsNotReady(ctx, node); failed != nil {
			c.podsMarked.Set(node.Name, false)
		}
	}
	// A pod that cannot be marked does not keep the others on the node.
	return errors.Join(failed, controller.IgnoreNotFound(c.taint(ctx, node)))
}

// labelPlatform sets the older labels for the operating system and architecture of a node to
// the values of those that its kubelet sets.
func (c *nodes) labelPlatform(ctx context.Context, node *v1.Node) error {
	labels := map[string]string{}
	for _, l := range []struct{ label, older string }{
		{v1.LabelOSStable, "beta.kubernetes.io/os"},
		{v1.LabelArchStable, "beta.kubernetes.io/arch"},
	} {
		if value, ok := node.Labels[l.label]; ok && node.Labels[l.older] != value {
			labels[l.older] = value
		}
	}
	if len(labels) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": node.UID, "labels": labels}})
	if err != nil {
		return err
	}
	_, err = c.kube.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	return err
}

// monitor sets the conditions of a node to Unknown if it is unhealthy, and otherwise
// enqueues it for its deadline. It returns the updated node.
func (c *nodes) monitor(ctx context.Context, node *v1.Node) (*v1.Node, error) {
	now := time.Now()
	h, left := c.timeLeft(node, now)
	if left > 0 {
		c.queue.AddAfter(node.Name, left)
		return node, nil
	}
	conditions := unknownConditions(node, now)
	if equality.Semantic.DeepEqual(conditions, node.Status.Conditions) {
		return node, nil
	}
	// The cache may be out of date (KEP-5647).
	lease, err := c.kube.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(ctx, node.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading the lease of node %s: %w", node.Name, err)
	}
	if err == nil {
		c.observe(node.Name, nil, lease.Spec.RenewTime)
		if _, left = c.timeLeft(node, now); left > 0 {
			c.queue.AddAfter(node.Name, left)
			return node, nil
		}
	}
	wasReady := nodestatus.Ready(node) == v1.ConditionTrue
	next := node.DeepCopy()
	next.Status.Conditions = conditions
	klog.FromContext(ctx).Info("Node has stopped reporting, setting its conditions to Unknown", "node", node.Name, "lastHeartbeat", h.probeObserved)
	updated, err := c.kube.CoreV1().Nodes().UpdateStatus(ctx, next, metav1.UpdateOptions{})
	if err == nil && wasReady {
		c.env.Events.Eventf(reference(node), v1.EventTypeNormal, "NodeNotReady", "Node %s status is now: NodeNotReady", node.Name)
	}
	if err == nil && c.updateZone(updated) {
		c.enqueueAll()
	}
	return updated, err
}

// timeLeft returns the last heartbeat of a node and the time until the node is unhealthy.
func (c *nodes) timeLeft(node *v1.Node, now time.Time) (h nodeHealth, left time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if current := c.health[node.Name]; current != nil {
		h = *current
	}
	return h, deadline(node, h, c.options.monitorGracePeriod, c.options.startupGracePeriod).Sub(now)
}

// markPodsNotReady sets the condition Ready of the pods of a node to false, so that
// Services stop sending traffic to them.
func (c *nodes) markPodsNotReady(ctx context.Context, node *v1.Node) error {
	affected, err := pods.OnNode(c.pods, node.Name)
	if err != nil {
		return err
	}
	return supervise.Each(affected, func(p *v1.Pod) error {
		if !podquery.IsReady(p) {
			return nil
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": p.UID},
			"status": map[string]any{"conditions": []map[string]any{{
				"type": v1.PodReady, "status": v1.ConditionFalse, "lastTransitionTime": metav1.Now(), "observedGeneration": p.Generation,
			}}},
		})
		if err != nil {
			return err
		}
		_, err = c.kube.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("marking pod %s/%s not ready: %w", p.Namespace, p.Name, err)
		}
		c.env.Events.Event(p, v1.EventTypeWarning, "NodeNotReady", "Node is not ready")
		return nil
	})
}

// taint writes the taints for the conditions of a node.
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

// mayEvict reports whether a node that is not ready should have a NoExecute taint now. If
// not, wait is the time until the next attempt; 0 means when the state of a zone changes. A node
// that has never reported its status is not evicted.
func (c *nodes) mayEvict(node *v1.Node) (evict bool, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if nodestatus.Ready(node) == v1.ConditionTrue {
		delete(c.evicting, node.Name)
		return false, 0
	}
	z := c.zones[zoneOf(node)]
	if z == nil || nodestatus.Condition(node, v1.NodeReady) == nil {
		return false, 0
	}
	disrupted := allFullyDisrupted(c.zones, c.options.rates.threshold)
	if disrupted {
		delete(c.evicting, node.Name) // it waits for its turn again
		return false, 0
	}
	if hasEvictionTaint(node) || c.evicting[node.Name] {
		return true, 0
	}
	wait, never := z.tryEvict(c.options.rates.rate(z, disrupted), time.Now())
	if wait > 0 || never {
		return false, wait
	}
	c.evicting[node.Name] = true
	c.counts.evictions.WithLabelValues(zoneOf(node)).Inc()
	return true, 0
}

// reference returns the reference to a node for events.
func reference(node *v1.Node) *v1.ObjectReference {
	return &v1.ObjectReference{Kind: "Node", Name: node.Name, UID: node.UID, APIVersion: "v1"}
}
