package node

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	nodeutil "k8s.io/component-helpers/node/util"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Config is what a Reporter works with.
type Config struct {
	Client          *client.Client
	Name            string
	Hostname        string
	IPs             []string
	Labels          map[string]string
	Taints          []v1.Taint
	Register        bool
	ProviderID      string
	Machine         Machine
	Reserved        v1.ResourceList
	MaxPods         int32
	MaxImages       int
	Port            int32
	PodCIDR         string // for a node without one of a controller's
	UpdateFrequency time.Duration
	ReportFrequency time.Duration
	LeaseDuration   int32 // seconds
	Runtime         internalapi.RuntimeService
	Images          internalapi.ImageManagerService
	RuntimeVersion  func() string
	KubeletVersion  string
	Recorder        record.EventRecorder
	// Pressure returns the conditions of what the node is short of.
	Pressure    func() []v1.NodeConditionType
	Allocatable v1.ResourceList // until the Node object has it
	// Registered is called when the Node object first says what pods may use.
	Registered func()
}

// Reporter keeps the Node object and its Lease.
type Reporter struct {
	config Config
	kick   chan struct{}

	mu          sync.Mutex // guards what follows
	runtimeDown error
	answered    *Facts // of when the runtime answered last
	node        *v1.Node
	allocatable v1.ResourceList // of the newest Node object that has any
	registered  bool            // there was one
	podCIDR     string
}

// NewReporter returns a Reporter; Run makes it work.
func NewReporter(c Config) *Reporter {
	return &Reporter{config: c, kick: make(chan struct{}, 1), allocatable: c.Allocatable}
}

// RuntimeAnswered notes whether the container runtime answers: err is why it does
// not.
func (r *Reporter) RuntimeAnswered(err error) {
	r.mu.Lock()
	changed := (r.runtimeDown == nil) != (err == nil)
	r.runtimeDown = err
	r.mu.Unlock()
	if changed {
		r.Update()
	}
}

// Update makes the status be worked out anew at once.
func (r *Reporter) Update() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// Node returns the newest Node object known, nil before there is one.
func (r *Reporter) Node() *v1.Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.node
}

// Allocatable is what pods may use, as the Node object has it.
func (r *Reporter) Allocatable() v1.ResourceList {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.allocatable
}

// Run registers the node and reports until ctx ends.
func (r *Reporter) Run(ctx context.Context) {
	log := klog.FromContext(ctx)
	var beside supervise.WaitGroup
	defer beside.Wait()
	for wait := 50 * time.Millisecond; r.config.Register; wait = min(2*wait, 5*time.Second) {
		err := r.register(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		log.V(2).Info("The node cannot be registered yet", "node", r.config.Name, "err", err)
		sleep(ctx, wait)
	}
	beside.Go(ctx, func() { r.watch(ctx) })
	beside.Go(ctx, func() { r.lease(ctx) })
	ticker := time.NewTicker(r.config.UpdateFrequency)
	defer ticker.Stop()
	look := firstLook
	var reported time.Time // none yet: the first report says that this kubelet is there
	for {
		if err := r.report(ctx, &reported); err != nil && ctx.Err() == nil {
			log.Error(err, "Reporting the node's status failed, will try again", "node", r.config.Name)
		}
		var soon <-chan time.Time
		if node := r.Node(); node == nil || readiness(&node.Status) != v1.ConditionTrue {
			soon = time.After(look)
			look = min(2*look, notReadyPeriod)
		} else {
			look = firstLook
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-soon:
		case <-r.kick:
		}
	}
}

// A node that is not ready looks whether it is now after firstLook, and then
// twice as long after each time, up to notReadyPeriod.
const (
	firstLook      = 20 * time.Millisecond
	notReadyPeriod = 250 * time.Millisecond
)

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

func (r *Reporter) labels() map[string]string {
	labels := map[string]string{
		v1.LabelHostname: r.config.Hostname, v1.LabelOSStable: runtime.GOOS, v1.LabelArchStable: runtime.GOARCH,
		"beta.kubernetes.io/os": runtime.GOOS, "beta.kubernetes.io/arch": runtime.GOARCH,
	}
	maps.Copy(labels, r.config.Labels)
	return labels
}

// register creates the Node, or brings the labels of the one there up to date.
func (r *Reporter) register(ctx context.Context) error {
	nodes := r.config.Client.Kubernetes.CoreV1().Nodes()
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: r.config.Name, Labels: r.labels(), Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}},
		Spec:       v1.NodeSpec{Taints: r.config.Taints, ProviderID: r.config.ProviderID},
	}
	facts, err := r.facts(ctx)
	if err != nil {
		return err
	}
	node.Status = Status(facts, &v1.NodeStatus{})
	created, err := nodes.Create(ctx, node, metav1.CreateOptions{})
	if err == nil {
		r.tell(transitions(&v1.NodeStatus{}, &node.Status))
		r.seen(ctx, created)
		return nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create node %s: %w", r.config.Name, err)
	}
	existing, err := nodes.Get(ctx, r.config.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get node %s: %w", r.config.Name, err)
	}
	updated := existing.DeepCopy()
	if updated.Labels == nil {
		updated.Labels = map[string]string{}
	}
	maps.Copy(updated.Labels, r.labels())
	if updated.Spec.ProviderID == "" {
		updated.Spec.ProviderID = r.config.ProviderID
	}
	if !equality.Semantic.DeepEqual(existing, updated) {
		if existing, err = nodes.Update(ctx, updated, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("update node %s: %w", r.config.Name, err)
		}
	}
	r.seen(ctx, existing)
	return nil
}

// watch follows the Node object.
func (r *Reporter) watch(ctx context.Context) {
	informer := r.config.Client.Watch(v1.SchemeGroupVersion.WithResource("nodes"), "", fields.OneTermEqualSelector(metav1.ObjectNameField, r.config.Name))
	_, err := client.Follow(ctx, informer, cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { r.seen(ctx, o.(*v1.Node)) },
		UpdateFunc: func(_, o any) { r.seen(ctx, o.(*v1.Node)) },
		DeleteFunc: func(any) {
			if r.config.Register {
				r.Update()
			}
		},
	})
	if err != nil {
		supervise.Fail(ctx, err)
	}
	<-ctx.Done()
}

// seen takes a new version of the Node and passes its pod CIDR to the runtime.
func (r *Reporter) seen(ctx context.Context, node *v1.Node) {
	cidr := strings.Join(node.Spec.PodCIDRs, ",")
	if cidr == "" {
		cidr = node.Spec.PodCIDR
	}
	if cidr == "" {
		cidr = r.config.PodCIDR
	}
	r.mu.Lock()
	r.node = node
	first := false
	if len(node.Status.Allocatable) > 0 {
		first = !r.registered
		r.allocatable, r.registered = node.Status.Allocatable, true
	}
	fresh := cidr != "" && cidr != r.podCIDR
	r.podCIDR = cidr
	r.mu.Unlock()
	if fresh {
		err := r.config.Runtime.UpdateRuntimeConfig(ctx, &runtimeapi.RuntimeConfig{NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: cidr}})
		if err != nil {
			klog.FromContext(ctx).Error(err, "The runtime did not take the pod CIDR", "podCIDR", cidr)
			r.mu.Lock()
			r.podCIDR = ""
			r.mu.Unlock()
		}
		r.Update()
	}
	if first {
		r.config.Registered()
	}
}

// report writes the status if it changed, or if it was last written long ago.
func (r *Reporter) report(ctx context.Context, reported *time.Time) error {
	node := r.Node()
	if node == nil {
		return nil
	}
	facts, err := r.facts(ctx)
	if err != nil {
		return err
	}
	after := node.DeepCopy()
	after.Status = Status(facts, &node.Status)
	if !Changed(&node.Status, &after.Status) && time.Since(*reported) < r.config.ReportFrequency {
		return nil
	}
	written, _, err := nodeutil.PatchNodeStatus(r.config.Client.Kubernetes.CoreV1(), types.NodeName(r.config.Name), node, after)
	if apierrors.IsNotFound(err) && r.config.Register {
		return r.register(ctx)
	}
	if err != nil {
		return err
	}
	*reported = time.Now()
	r.tell(transitions(&node.Status, &after.Status))
	r.mu.Lock()
	if r.node == node {
		r.node = written
	}
	r.mu.Unlock()
	return nil
}

// tell records an event for each change of the node's conditions.
func (r *Reporter) tell(reasons []string) {
	for _, reason := range reasons {
		r.config.Recorder.Eventf(Reference(r.config.Name), v1.EventTypeNormal, reason, "Node %s status is now: %s", r.config.Name, reason)
	}
}

// Reference names the node in events.
func Reference(name string) *v1.ObjectReference {
	return &v1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: name, UID: types.UID(name)}
}

func readiness(s *v1.NodeStatus) v1.ConditionStatus {
	for _, c := range s.Conditions {
		if c.Type == v1.NodeReady {
			return c.Status
		}
	}
	return v1.ConditionUnknown
}

func (r *Reporter) facts(ctx context.Context) (Facts, error) {
	capacity, err := r.config.Machine.Capacity()
	if err != nil {
		return Facts{}, err
	}
	f := Facts{
		Hostname: r.config.Hostname, IPs: r.config.IPs, Capacity: capacity, Allocatable: Allocatable(capacity, r.config.Reserved),
		MaxPods: r.config.MaxPods, Info: r.config.Machine.Info(), Port: r.config.Port, MaxImages: r.config.MaxImages, Now: time.Now(),
	}
	f.Info.ContainerRuntimeVersion, f.Info.KubeletVersion = r.config.RuntimeVersion(), r.config.KubeletVersion
	pressure := r.config.Pressure()
	f.MemoryPressure, f.DiskPressure = slices.Contains(pressure, v1.NodeMemoryPressure), slices.Contains(pressure, v1.NodeDiskPressure)
	f.PIDPressure = slices.Contains(pressure, v1.NodePIDPressure)
	r.mu.Lock()
	down := r.runtimeDown
	r.mu.Unlock()
	if down != nil {
		return r.silent(f, fmt.Sprintf("container runtime is down: %v", down)), nil
	}
	status, err := r.config.Runtime.Status(ctx, false)
	if err != nil {
		return r.silent(f, "container runtime status check may not have completed yet"), nil
	}
	for _, c := range status.GetStatus().GetConditions() {
		switch {
		case c.GetStatus():
		case c.GetType() == runtimeapi.RuntimeReady:
			f.NotReady = append(f.NotReady, fmt.Sprintf("container runtime not ready: RuntimeReady=false reason:%s message:%s", c.GetReason(), c.GetMessage()))
		case c.GetType() == runtimeapi.NetworkReady:
			f.NotReady = append(f.NotReady, fmt.Sprintf("container runtime network not ready: NetworkReady=false reason:%s message:%s", c.GetReason(), c.GetMessage()))
		}
	}
	f.Handlers, f.Features = status.GetRuntimeHandlers(), status.GetFeatures()
	f.Images, _ = r.config.Images.ListImages(ctx, nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answered = &f
	return f, nil
}

// runtimePatience is how long a container runtime may be silent before the
// node is not ready, as upstream has it: one that is started anew takes less,
// and its containers go on meanwhile.
const runtimePatience = 30 * time.Second

// silent completes the facts while the runtime does not answer: with what it
// said last, or, after runtimePatience, with the reason.
func (r *Reporter) silent(f Facts, reason string) Facts {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answered == nil || f.Now.Sub(r.answered.Now) >= runtimePatience {
		f.NotReady = append(f.NotReady, reason)
		return f
	}
	f.NotReady, f.Handlers, f.Features, f.Images = r.answered.NotReady, r.answered.Handlers, r.answered.Features, r.answered.Images
	return f
}

// lease renews the node's Lease four times in its duration.
func (r *Reporter) lease(ctx context.Context) {
	leases := r.config.Client.Kubernetes.CoordinationV1().Leases(v1.NamespaceNodeLease)
	period := time.Duration(r.config.LeaseDuration) * time.Second / 4
	timer := time.NewTimer(0)
	defer timer.Stop()
	var current *coordinationv1.Lease
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		err := r.renew(ctx, leases, &current)
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Renewing the node's lease failed, will try again", "node", r.config.Name)
			timer.Reset(min(period, time.Second))
			continue
		}
		timer.Reset(period)
	}
}

// RuntimeError is why the container runtime does not answer, nil if it does.
func (r *Reporter) RuntimeError() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.runtimeDown
}
