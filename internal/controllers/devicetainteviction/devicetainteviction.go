// Package devicetainteviction is the device taint eviction controller
// (KEP-5055). It deletes pods whose devices have a NoExecute taint that their
// claims do not tolerate, or tolerate no longer.
//
//	ResourceSlice, DeviceTaintRule ──► taints of a device ─┐
//	ResourceClaim ──► devices, tolerations ────────────────┴─► when: eviction.go
//	pod ──► the earliest of its claims ──► event, condition, deletion
//	DeviceTaintRule ──► condition EvictionInProgress: rule.go
package devicetainteviction

import (
	"context"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	library "k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/poddisruption"
	"github.com/coracle-io/coracle/internal/wallclock"
)

// name is the controller's name, in --controllers and as the source of events.
const name = "device-taint-eviction-controller"

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	workers, counted := 50, newCounts()
	return controller.Descriptor{
		Name:           name,
		ServiceAccount: name,
		EventSource:    name,
		AddFlags:       controller.WorkersFlag(&workers, "concurrent-device-taint-eviction-syncs", "pods with tainted devices"),
		New: func(env *controller.Env) (controller.Controller, error) {
			if err := env.Expose(counted.deletions, counted.latency); err != nil {
				return nil, err
			}
			return &evictor{env: env, kube: env.Client.Kubernetes, counts: counted, workers: workers, evicted: map[types.UID]int{}}, nil
		},
	}
}

// key is a pod or a DeviceTaintRule.
type key struct {
	rule bool
	controller.Key
}

type evictor struct {
	env     *controller.Env
	kube    kubernetes.Interface
	counts  *counts
	workers int
	queue   *controller.Queue[key]

	pods   cache.Indexer // by their claims
	claims cache.Indexer // by the pools of their devices
	slices cache.Indexer // by their pool
	rules  cache.Indexer // nil: they are not served

	pending controller.Marks[types.UID]  // pods with a scheduled eviction
	added   wallclock.Moments[types.UID] // when the taints were added that evict them

	mu      sync.Mutex        // guards evicted
	evicted map[types.UID]int // how many pods were evicted for each rule
}

// The indexes.
const (
	byClaim = "deviceTaintClaim"
	byPool  = "deviceTaintPool"
)

// Run implements controller.Controller. It does nothing where ResourceClaims are
// not served, or if its feature gate is off.
func (c *evictor) Run(ctx context.Context) error {
	if served, err := c.env.WaitUnlessServed(ctx, resourceapi.SchemeGroupVersion.WithResource("resourceclaims"), feature.DRADeviceTaints); !served {
		return err
	}
	rulesServed, err := c.env.IsServed(ctx, resourceapi.SchemeGroupVersion.WithResource("devicetaintrules"), feature.DRADeviceTaintRules)
	if err != nil {
		return err
	}
	pods, resources := c.env.Client.Informers.Core().V1().Pods().Informer(), c.env.Client.Informers.Resource().V1()
	claims, pools := resources.ResourceClaims().Informer(), resources.ResourceSlices().Informer()
	c.pods, c.claims, c.slices = pods.GetIndexer(), claims.GetIndexer(), pools.GetIndexer()
	c.queue = controller.NewQueue(c.env.Queues, name, c.sync)
	for _, index := range []error{
		c.env.Index(pods, byClaim, claimsOf), c.env.Index(claims, byPool, poolsOf), c.env.Index(pools, byPool, poolOf),
	} {
		if index != nil {
			return index
		}
	}
	sources := []controller.Source{controller.On(claims, c.claimChanged), controller.On(pods, c.podChanged), controller.On(pools, c.sliceChanged)}
	if rulesServed {
		rules := resources.DeviceTaintRules().Informer()
		c.rules = rules.GetIndexer()
		sources = append(sources, controller.On(rules, c.ruleChanged))
	}
	return controller.Serve(ctx, sources, c.queue.Workers(c.workers))
}

func claimsOf(obj any) (keys []string, err error) {
	if pod, ok := obj.(*v1.Pod); ok {
		for claim := range library.PodClaims(pod) {
			keys = append(keys, pod.Namespace+"/"+claim)
		}
	}
	return keys, nil
}

func poolsOf(obj any) (keys []string, err error) {
	if claim, ok := obj.(*resourceapi.ResourceClaim); ok && claim.Status.Allocation != nil {
		for i := range claim.Status.Allocation.Devices.Results {
			r := &claim.Status.Allocation.Devices.Results[i]
			keys = append(keys, poolKey(r.Driver, r.Pool))
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys), nil
}

func poolOf(obj any) ([]string, error) {
	if slice, ok := obj.(*resourceapi.ResourceSlice); ok {
		return []string{poolKey(slice.Spec.Driver, slice.Spec.Pool.Name)}, nil
	}
	return nil, nil
}

// poolKey names a pool. No driver has a slash in its name.
func poolKey(driver, pool string) string { return driver + "/" + pool }

func (c *evictor) podChanged(old, pod *v1.Pod) {
	if pod == nil {
		c.cancel(old.UID)
		return
	}
	if pod.Spec.NodeName == "" || old != nil && old.Spec.NodeName == pod.Spec.NodeName &&
		equality.Semantic.DeepEqual(old.Status.ResourceClaimStatuses, pod.Status.ResourceClaimStatuses) &&
		equality.Semantic.DeepEqual(old.Status.ExtendedResourceClaimStatus, pod.Status.ExtendedResourceClaimStatus) {
		return
	}
	for range library.PodClaims(pod) {
		c.queue.Add(key{false, cache.MetaObjectToName(pod)})
		return
	}
}

func (c *evictor) claimChanged(old, claim *resourceapi.ResourceClaim) {
	switch {
	case claim == nil:
		claim = old
	case old != nil && equality.Semantic.DeepEqual(old.Status.Allocation, claim.Status.Allocation) &&
		equality.Semantic.DeepEqual(old.Status.ReservedFor, claim.Status.ReservedFor):
		return
	}
	c.addPodsOf(claim)
}

func (c *evictor) addPodsOf(claim *resourceapi.ResourceClaim) {
	users, err := c.pods.ByIndex(byClaim, cache.MetaObjectToName(claim).String())
	if err != nil {
		return
	}
	for _, user := range users {
		if pod, ok := user.(*v1.Pod); ok && pod.Spec.NodeName != "" {
			c.queue.Add(key{false, cache.MetaObjectToName(pod)})
		}
	}
}

// sliceChanged adds the pods that use devices of a pool, if any slice of it had
// or has a taint. A slice without taints may matter too: one of a new generation
// replaces all others.
func (c *evictor) sliceChanged(old, slice *resourceapi.ResourceSlice) {
	if old != nil && slice != nil && equality.Semantic.DeepEqual(old.Spec, slice.Spec) {
		return
	}
	for _, changed := range []*resourceapi.ResourceSlice{old, slice} {
		if changed == nil {
			continue
		}
		pool := poolKey(changed.Spec.Driver, changed.Spec.Pool.Name)
		if !hasNoExecute(old) && !hasNoExecute(slice) && !slices.ContainsFunc(c.slicesOf(pool), hasNoExecute) {
			continue
		}
		users, err := c.claims.ByIndex(byPool, pool)
		if err != nil {
			return
		}
		for _, obj := range users {
			if claim, ok := obj.(*resourceapi.ResourceClaim); ok {
				c.addPodsOf(claim)
			}
		}
	}
}

func (c *evictor) ruleChanged(old, rule *resourceapi.DeviceTaintRule) {
	if rule == nil {
		c.mu.Lock()
		delete(c.evicted, old.UID)
		c.mu.Unlock()
	}
	if old != nil && rule != nil && equality.Semantic.DeepEqual(old.Spec, rule.Spec) {
		return
	}
	if rule != nil {
		c.queue.Add(key{true, controller.Key{Name: rule.Name}})
	}
	for _, obj := range c.claims.List() {
		claim, ok := obj.(*resourceapi.ResourceClaim)
		if ok && claim.Status.Allocation != nil && (selectsDeviceOf(old, claim) || selectsDeviceOf(rule, claim)) {
			c.addPodsOf(claim)
		}
	}
}

func (c *evictor) sync(ctx context.Context, k key) error {
	if k.rule {
		return c.syncRule(ctx, k)
	}
	obj, exists, err := c.pods.GetByKey(k.Key.String())
	if err != nil || !exists {
		return err
	}
	pod := obj.(*v1.Pod)
	if pod.DeletionTimestamp != nil {
		c.cancel(pod.UID)
		return nil
	}
	now := time.Now()
	e, found := c.evictionOf(pod, c.allRules(), now)
	if !found {
		if c.cancel(pod.UID) {
			c.env.Events.Eventf(pod, v1.EventTypeNormal, "DeviceTaintManagerEviction", "Cancelling deletion")
		}
		return nil
	}
	c.pending.Set(pod.UID, true)
	for _, rule := range e.rules {
		c.queue.Add(key{true, controller.Key{Name: rule.Name}})
	}
	at := c.added.At(pod.UID, e.added, now).Add(e.granted)
	if at.After(now) {
		c.queue.AddAfter(k, at.Sub(now))
		return nil
	}
	deleted, err := c.evict(ctx, pod)
	if err != nil {
		return err
	}
	c.cancel(pod.UID)
	if !deleted {
		return nil
	}
	c.counts.deletions.Inc()
	c.counts.latency.Observe(time.Since(at).Seconds())
	for _, rule := range e.rules {
		c.mu.Lock()
		c.evicted[rule.UID]++
		c.mu.Unlock()
		c.queue.AddAfter(key{true, controller.Key{Name: rule.Name}}, ruleStatusPeriod) // by then the informer shows it
	}
	return nil
}

// cancel drops what is remembered of a pod with a scheduled eviction, and reports whether it had
// one.
func (c *evictor) cancel(pod types.UID) (scheduled bool) {
	c.added.Forget(pod)
	return c.pending.Set(pod, false)
}

// evict deletes a pod, unless the API server says that it is gone or being
// deleted already.
func (c *evictor) evict(ctx context.Context, pod *v1.Pod) (deleted bool, err error) {
	current, err := c.kube.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return false, controller.IgnoreNotFound(err)
	}
	if current.UID != pod.UID || current.DeletionTimestamp != nil {
		return false, nil
	}
	klog.FromContext(ctx).Info("Deleting pod that does not tolerate a taint of its device", "pod", klog.KObj(pod))
	c.env.Events.Eventf(pod, v1.EventTypeNormal, "DeviceTaintManagerEviction", "Marking for deletion")
	return poddisruption.Evict(ctx, c.kube, current, "DeletionByDeviceTaintManager", "Device Taint manager: deleting due to NoExecute taint")
}
