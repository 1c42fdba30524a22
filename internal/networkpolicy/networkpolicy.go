// Package networkpolicy enforces the NetworkPolicies of a cluster for the pods of
// one node. It computes Rules, a value, from Pods, Namespaces and
// NetworkPolicies. A Backend applies each new value to the kernel.
//
//	informers ──changed object──► state ──Rules──► Backend (nftables)
//	kubelet ──sandbox's address──►  │                one transaction
//	   ▲                            │                of the difference
//	   └────── Admit returns ◄──────┴── the kernel has the pod's rules
//
// The kubelet starts no container of a pod before Admit has returned, so that no
// process of a pod runs without the pod's policies. Rules stay in the kernel when
// the process ends.
package networkpolicy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/applyloop"
	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/supervise"
)

// User is the identity of the API that an Enforcer reads with.
const User = "system:coracle:network-policy"

// Condition is reported while the kernel's rules differ from the API's policies.
const Condition = "NetworkPolicy"

// Backend applies Rules to the kernel. One goroutine uses it.
type Backend interface {
	// Apply changes the kernel from the Rules of the last successful Apply to
	// rules, entirely or not at all. The first Apply replaces what an earlier
	// process left, in one step.
	Apply(rules Rules) error
	// Intact reports whether the kernel still holds what Apply wrote. If not,
	// the next Apply rewrites everything.
	Intact() (bool, error)
	// Isolated returns the addresses that the kernel isolates now, which may be those
	// of an earlier process.
	Isolated() ([]netip.Addr, error)
	// Remove removes everything from the kernel.
	Remove() error
}

// Config configures an Enforcer.
type Config struct {
	NodeName string
	Backend  Backend
	// CheckPeriod is the interval at which the kernel is checked
	// (Backend.Intact), 3 s by default. RetryPeriod is the wait after a
	// failure, 1 s by default. AdmitTimeout is how long Admit waits, 10 s by
	// default.
	CheckPeriod  time.Duration
	RetryPeriod  time.Duration
	AdmitTimeout time.Duration
}

// Enforcer enforces the NetworkPolicies for the pods of a node. Its methods may
// be called by several goroutines.
type Enforcer struct {
	config  Config
	metrics *applyloop.Metrics

	mu      sync.Mutex     // guards the following
	state   *state         // of the running Run; before the first one it is empty
	api     *client.Client // of the running Run; nil before the first one
	applied uint64         // generation of state that the kernel has
	failure error          // of the last Apply
	waiters chan struct{}
	asking  map[string]bool // namespaces whose policies a call of Admit lists

	tooLarge int // how many policies were too large in the last apply, which alone uses it
}

// New returns an enforcer that does not run yet.
func New(config Config) *Enforcer {
	if config.CheckPeriod == 0 {
		config.CheckPeriod = 3 * time.Second
	}
	if config.RetryPeriod == 0 {
		config.RetryPeriod = time.Second
	}
	if config.AdmitTimeout == 0 {
		config.AdmitTimeout = 10 * time.Second
	}
	return &Enforcer{config: config, metrics: newMetrics(), state: newState(config.NodeName), waiters: make(chan struct{}), asking: map[string]bool{}}
}

// Metrics returns the metrics of the enforcer.
func (e *Enforcer) Metrics() *applyloop.Metrics { return e.metrics }

// Run enforces the policies until ctx ends. The rules stay in the kernel, so
// that pods stay isolated while the enforcer restarts; Backend.Remove removes
// them.
func (e *Enforcer) Run(ctx context.Context, api *client.Client) error {
	return supervise.Run(ctx, func(ctx context.Context) error {
		s, err := e.begin(api)
		if err != nil {
			return err
		}
		synced, err := watch(ctx, api, s)
		if err != nil {
			return err
		}
		if !cache.WaitFor(ctx, "", synced...) {
			return nil
		}
		e.applyLoop(ctx, s)
		return nil
	})
}

// begin returns a new state with what the kubelet has said to the former one. The
// first one closes the addresses that an earlier process has isolated until their
// pods are known: the API gets the addresses of a new pod some time after its
// containers have started.
func (e *Enforcer) begin(api *client.Client) (*state, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.api == nil {
		isolated, err := e.config.Backend.Isolated()
		if err != nil {
			return nil, fmt.Errorf("reading the isolated addresses: %w", err)
		}
		e.state.closeAll(isolated)
	}
	e.state = e.state.successor()
	e.api, e.applied = api, 0
	e.wake()
	return e.state, nil
}

// wake wakes the calls of Admit. The caller must hold the mutex.
func (e *Enforcer) wake() {
	close(e.waiters)
	e.waiters = make(chan struct{})
}

// watch passes the informers' events to the state. It returns checkers of
// whether all initial objects have been passed on.
func watch(ctx context.Context, api *client.Client, s *state) ([]cache.DoneChecker, error) {
	reduced := func(of schema.GroupVersion, resource string) cache.SharedIndexInformer {
		return api.WatchReduced(of.WithResource(resource), "", fields.Everything(), reduce)
	}
	var synced []cache.DoneChecker
	for _, source := range []struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{
		{reduced(networkingv1.SchemeGroupVersion, "networkpolicies"), client.SetHandler(s.setPolicy, s.deletePolicy)},
		{reduced(v1.SchemeGroupVersion, "namespaces"), client.SetHandler(s.setNamespace, s.deleteNamespace)},
		{reduced(v1.SchemeGroupVersion, "pods"), client.SetHandler(s.setPod, s.deletePod)},
	} {
		hasSynced, err := client.Follow(ctx, source.informer, source.handler)
		if err != nil {
			return nil, fmt.Errorf("watching for network policies: %w", err)
		}
		synced = append(synced, hasSynced)
	}
	return synced, nil
}

// reduce returns what the state uses of an object: each node keeps that of all pods,
// namespaces and policies of the cluster. It returns other objects as they are.
func reduce(obj any) (any, error) {
	switch o := obj.(type) {
	case *networkingv1.NetworkPolicy:
		meta := client.Identity(o)
		meta.CreationTimestamp = o.CreationTimestamp
		return &networkingv1.NetworkPolicy{ObjectMeta: meta, Spec: o.Spec}, nil
	case *v1.Namespace:
		return &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, Labels: o.Labels}}, nil
	case *v1.Pod:
		return reducedPod(o), nil
	}
	return obj, nil
}

// reducedPod returns what state.read uses of a pod. Of one without an address, labels and
// ports are left out: they may have any size, and there may be many that no node runs.
func reducedPod(p *v1.Pod) *v1.Pod {
	out := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion,
			CreationTimestamp: p.CreationTimestamp, DeletionTimestamp: p.DeletionTimestamp,
		},
		Spec:   v1.PodSpec{NodeName: p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork},
		Status: v1.PodStatus{Phase: p.Status.Phase},
	}
	if hasAddress(p) {
		out.Labels, out.Status.PodIPs = p.Labels, p.Status.PodIPs
		out.Spec.Containers, out.Spec.InitContainers = namedPorts(p.Spec.Containers), namedPorts(p.Spec.InitContainers)
	}
	if isMirror(p) {
		out.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "true"} // the value may have any size
	}
	return out
}

// namedPorts returns the containers that have ports with names, with only these.
func namedPorts(list []v1.Container) (out []v1.Container) {
	for i := range list {
		var named []v1.ContainerPort
		for _, port := range list[i].Ports {
			if port.Name != "" {
				named = append(named, port)
			}
		}
		if len(named) > 0 {
			out = append(out, v1.Container{Ports: named})
		}
	}
	return out
}

// applyLoop applies changes until ctx ends.
func (e *Enforcer) applyLoop(ctx context.Context, s *state) {
	applyloop.Loop{
		Name: "network policies", Changed: s.changed,
		Apply: func() error { return e.apply(ctx, s) }, Intact: e.config.Backend.Intact,
		CheckPeriod: e.config.CheckPeriod, RetryPeriod: e.config.RetryPeriod,
	}.Run(ctx)
}

// apply applies the rules of a state.
func (e *Enforcer) apply(ctx context.Context, s *state) error {
	started := time.Now()
	rules, generation := s.rules()
	if n := len(rules.TooLarge); n != e.tooLarge && n > 0 {
		klog.FromContext(ctx).Info("Network policies allow nothing, because those of their namespace are too large together, or too many", "policies", n, "one", rules.TooLarge[0].String())
	}
	e.tooLarge = len(rules.TooLarge)
	err := e.config.Backend.Apply(rules)
	supervise.Report(ctx, Condition, err)
	e.done(s, generation, err)
	e.metrics.Record(time.Since(started), err)
	if err != nil {
		return err
	}
	klog.FromContext(ctx).V(4).Info("Applied network policies", "policies", len(rules.Policies), "isolatedAddresses", len(rules.Pods), "took", time.Since(started))
	return nil
}

// done records the end of an Apply.
func (e *Enforcer) done(s *state, generation uint64, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state != s {
		return
	}
	if e.failure = err; err == nil {
		e.applied = generation
	}
	e.wake()
}

// Admit returns once the kernel enforces the policies of a pod of this node, whose
// sandbox has these addresses: those that the API had when Admit was called. It
// takes the addresses from pods that had them before. It returns an error if that
// takes longer than Config.AdmitTimeout. A static pod needs no object of the API.
func (e *Enforcer) Admit(ctx context.Context, p *v1.Pod, static bool, ips []string) error {
	addresses, err := parse(ips)
	if err != nil || len(addresses) == 0 || p.Spec.HostNetwork {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, e.config.AdmitTimeout, errLate)
	defer cancel()
	name := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
	for {
		e.mu.Lock()
		s, api, applied, failure, changed := e.state, e.api, e.applied, e.failure, e.waiters
		e.mu.Unlock()
		generation, known, verified := s.admit(name, p.UID, addresses)
		switch {
		case !known && static && s.setStatic(p):
			continue
		case known && !verified && api != nil:
			if verified, failure = e.verify(ctx, api, s, name.Namespace); verified {
				continue
			}
		case known && verified && applied >= generation:
			return nil
		}
		again := time.NewTimer(e.config.RetryPeriod)
		select {
		case <-changed:
		case <-again.C:
		case <-ctx.Done():
			s.forget(name, p.UID)
			return ended(ctx, failure)
		}
		again.Stop()
	}
}

// verify finds out whether the state has the policies that the API has for the pods of
// a namespace that are in Admit. This watch may be behind the watch of the kubelet.
// One call lists them for all pods, which it wakes: there may be very many, and the
// namespace's pods may all start at once.
func (e *Enforcer) verify(ctx context.Context, api *client.Client, s *state, namespace string) (verified bool, err error) {
	e.mu.Lock()
	busy := e.asking[namespace]
	e.asking[namespace] = true
	e.mu.Unlock()
	if busy {
		return false, nil
	}
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.asking, namespace)
		if verified {
			e.wake()
		}
	}()
	since := s.now()
	known, err := knows(ctx, api, s, namespace)
	if known {
		s.verify(namespace, since)
	}
	return known, err
}

// maxPage is how many policies are listed at a time. Each may have 3 MiB.
const maxPage = 20

// knows reports whether the state has the policies of a namespace that the API has.
func knows(ctx context.Context, api *client.Client, s *state, namespace string) (bool, error) {
	page := metav1.ListOptions{Limit: maxPage}
	for {
		list, err := api.Kubernetes.NetworkingV1().NetworkPolicies(namespace).List(ctx, page)
		if err != nil {
			return false, fmt.Errorf("listing network policies: %w", err)
		}
		if !s.has(namespace, list.Items) {
			return false, nil
		}
		if page.Continue = list.Continue; page.Continue == "" {
			return true, nil
		}
	}
}

// ended says why Admit has waited in vain.
func ended(ctx context.Context, failure error) error {
	if err := context.Cause(ctx); !errors.Is(err, errLate) {
		return err
	}
	if failure != nil {
		return fmt.Errorf("%w: %w", errLate, failure)
	}
	return errLate
}

var errLate = errors.New("the network policies of the pod are not applied yet")

func parse(ips []string) ([]netip.Addr, error) {
	var out []netip.Addr
	for _, ip := range ips {
		a, err := netip.ParseAddr(ip)
		if err != nil {
			return nil, fmt.Errorf("address of the pod's sandbox: %w", err)
		}
		out = append(out, a.Unmap())
	}
	return out, nil
}
