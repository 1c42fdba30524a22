package node

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
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
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/csivolume"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/kubelet/allocatable"
	"github.com/coracle-io/coracle/internal/nodeaddress"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Config configures a Reporter.
type Config struct {
	Client        *client.Client
	Configuration *kubeletconfig.KubeletConfiguration // with defaults
	Features      *feature.Set                        // nil: the defaults
	Name          string
	IPs           *nodeaddress.List // may change
	Labels        map[string]string
	Machine       Machine
	Runtime       internalapi.RuntimeService
	Images        internalapi.ImageManagerService
	Recorder      record.EventRecorder
	Hooks
}

// Hooks connect a Reporter with the other parts of the kubelet.
type Hooks struct {
	// Versions returns the versions of the runtime and of the kubelet.
	Versions func() (runtime, kubelet string)
	// Devices returns the capacity and the allocatable resources of device
	// plugins.
	Devices func() (capacity, allocatable v1.ResourceList)
	// Pressure returns the pressure conditions that are true.
	Pressure func() []v1.NodeConditionType
	// Registered is called once, when the Node object first has allocatable
	// resources.
	Registered func()
	// VolumesInUse returns the attachable volumes that may be mounted.
	VolumesInUse func() []v1.UniqueVolumeName
	// Observed is called for each new version of the Node object with the one
	// before it, which may be nil.
	Observed func(before, after *v1.Node)
}

// Reporter keeps the Node object and its Lease up to date.
type Reporter struct {
	config   Config
	reserved v1.ResourceList
	maxPods  int32
	updates  chan struct{}

	asking     sync.Mutex // guards what follows; held while Latest asks
	latest     *v1.Node
	nextLatest time.Time // when Latest may ask again

	mu          sync.Mutex // guards what follows
	runtimeDown error
	notReady    string // see SetNotReady
	answered    *Facts // the facts when the runtime last answered
	network     string // why it had no network for pods then
	node        *v1.Node
	allocatable v1.ResourceList // of the newest Node object that has one, or of the machine
	registered  bool            // a Node object had allocatable
	watched     bool            // the watch shows the Node object
	withdrawn   bool            // the Node object was deleted while it was cordoned
	cordoned    bool            // as the last event of it says
	podCIDR     string          // of the node
	sentPodCIDR string          // that the runtime has
}

// NewReporter returns a Reporter. Run starts its work.
func NewReporter(c Config) (*Reporter, error) {
	capacity, err := c.capacity()
	if err != nil {
		return nil, fmt.Errorf("read the machine's capacity: %w", err)
	}
	reserved, err := allocatable.Reserved(c.Configuration, capacity)
	return &Reporter{
		config: c, reserved: reserved, maxPods: maxPods(c.Configuration, capacity), updates: make(chan struct{}, 1),
		allocatable: allocatable.ForPods(capacity, reserved),
	}, err
}

// capacity returns the capacity of the machine that pods can request.
func (c *Config) capacity() (v1.ResourceList, error) {
	list, err := c.Machine.Capacity()
	if isolated := c.Configuration.LocalStorageCapacityIsolation; err != nil || isolated == nil || *isolated {
		return list, err
	}
	list = maps.Clone(list)
	delete(list, v1.ResourceEphemeralStorage)
	return list, nil
}

// maxPods returns the maximum number of pods: maxPods, or fewer by podsPerCore.
func maxPods(c *kubeletconfig.KubeletConfiguration, capacity v1.ResourceList) int32 {
	if c.PodsPerCore == 0 {
		return c.MaxPods
	}
	return int32(min(int64(c.MaxPods), int64(c.PodsPerCore)*capacity.Cpu().Value()))
}

// RuntimeAnswered records whether the container runtime answers. err is nil if
// it does.
func (r *Reporter) RuntimeAnswered(err error) {
	r.mu.Lock()
	changed := (r.runtimeDown == nil) != (err == nil)
	r.runtimeDown = err
	r.mu.Unlock()
	if changed {
		r.Update()
	}
}

// SetNotReady makes the node not ready for a reason besides the container runtime's,
// until it is called with "".
func (r *Reporter) SetNotReady(why string) {
	r.mu.Lock()
	r.notReady = why
	r.mu.Unlock()
	r.Update()
}

func (r *Reporter) notReadyReason() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.notReady
}

// Update makes Run compute the status now instead of at the next period.
func (r *Reporter) Update() {
	select {
	case r.updates <- struct{}{}:
	default:
	}
}

// Node returns the newest known Node object, nil before the first.
func (r *Reporter) Node() *v1.Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.node
}

// The sync loop waits for Latest, which asks for at most a part of the time.
const (
	maxLatest  = 2 * time.Second // of one question
	latestRest = 10              // times as long as a question took, nothing is asked
)

// Latest returns the Node object that the API server has, nil if it does not answer.
// Shortly after a question it returns the same as before.
func (r *Reporter) Latest() *v1.Node {
	r.asking.Lock()
	defer r.asking.Unlock()
	began := time.Now()
	if began.Before(r.nextLatest) {
		return r.latest
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxLatest)
	defer cancel()
	node, err := r.config.Client.Kubernetes.CoreV1().Nodes().Get(ctx, r.config.Name, metav1.GetOptions{})
	if err != nil {
		node = nil
	}
	ended := time.Now()
	r.latest, r.nextLatest = node, ended.Add(latestRest*ended.Sub(began))
	return r.latest
}

// Allocatable returns the allocatable resources of the Node object.
func (r *Reporter) Allocatable() v1.ResourceList {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.allocatable
}

// Run registers the node and reports its status until ctx ends.
func (r *Reporter) Run(ctx context.Context) {
	log := klog.FromContext(ctx)
	var background supervise.WaitGroup
	defer background.Wait()
	for wait := 50 * time.Millisecond; *r.config.Configuration.RegisterNode; wait = min(2*wait, 5*time.Second) {
		attempt, cancel := context.WithTimeout(ctx, r.config.Configuration.NodeStatusUpdateFrequency.Duration)
		err := r.register(attempt)
		cancel()
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		log.V(2).Info("The node cannot be registered yet", "node", r.config.Name, "err", err)
		supervise.Pause(ctx, wait)
	}
	background.Go(ctx, func() { r.watch(ctx) })
	background.Go(ctx, func() { r.lease(ctx) })
	ticker := time.NewTicker(r.config.Configuration.NodeStatusUpdateFrequency.Duration)
	defer ticker.Stop()
	wait := firstRetry
	var due time.Time // zero: the first report is always written, as a sign of life
	for {
		err := r.report(ctx, &due)
		if err != nil && ctx.Err() == nil {
			log.Error(err, "Reporting the node's status failed, will try again", "node", r.config.Name)
		}
		var soon <-chan time.Time
		if node := r.Node(); node == nil || readiness(&node.Status) != v1.ConditionTrue {
			soon = time.After(wait)
			most := notReadyPeriod
			if err != nil {
				most = failedPeriod
			}
			wait = min(2*wait, most)
		} else {
			wait = firstRetry
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-soon:
		case <-r.updates:
		}
	}
}

// While the node is not ready, Run computes its status again after firstRetry.
// The interval doubles each time, up to notReadyPeriod, or up to failedPeriod
// while the API server fails.
const (
	firstRetry     = 20 * time.Millisecond
	notReadyPeriod = 250 * time.Millisecond
	failedPeriod   = 5 * time.Second
)

func (r *Reporter) labels() map[string]string {
	labels := map[string]string{
		v1.LabelHostname: r.config.Name, v1.LabelOSStable: runtime.GOOS, v1.LabelArchStable: runtime.GOARCH,
		"beta.kubernetes.io/os": runtime.GOOS, "beta.kubernetes.io/arch": runtime.GOARCH,
	}
	maps.Copy(labels, r.config.Labels)
	return labels
}

// updateLabels gives a Node that exists the labels that describe its machine. Others
// of --node-labels are for new Nodes: somebody may have changed them since.
func updateLabels(node *v1.Node, labels map[string]string) {
	for _, key := range []string{
		v1.LabelHostname, v1.LabelOSStable, v1.LabelArchStable, "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
		v1.LabelTopologyZone, v1.LabelTopologyRegion, v1.LabelFailureDomainBetaZone, v1.LabelFailureDomainBetaRegion,
		v1.LabelInstanceTypeStable, v1.LabelInstanceType,
	} {
		value, known := labels[key]
		switch {
		case !known:
		case value == "":
			delete(node.Labels, key)
		default:
			metav1.SetMetaDataLabel(&node.ObjectMeta, key, value)
		}
	}
}

// register creates the Node object, or updates the annotation, the provider ID and
// the labels of the machine of an existing one.
func (r *Reporter) register(ctx context.Context) error {
	nodes := r.config.Client.Kubernetes.CoreV1().Nodes()
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: r.config.Name, Labels: r.labels(), Annotations: map[string]string{csivolume.ControllerManagedAttachAnnotation: "true"}},
		Spec:       v1.NodeSpec{Taints: r.config.Configuration.RegisterWithTaints, ProviderID: r.config.Configuration.ProviderID},
	}
	facts, err := r.facts(ctx)
	if err != nil {
		return err
	}
	if why := r.notReadyReason(); why != "" {
		facts.NotReady = append(slices.Clone(facts.NotReady), why)
	}
	node.Status = Status(facts, &v1.NodeStatus{})
	created, err := nodes.Create(ctx, node, metav1.CreateOptions{})
	if err == nil {
		r.recordTransitions(transitions(&v1.NodeStatus{}, &node.Status))
		r.observe(ctx, created)
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
	updateLabels(updated, node.Labels)
	metav1.SetMetaDataAnnotation(&updated.ObjectMeta, csivolume.ControllerManagedAttachAnnotation, "true")
	if updated.Spec.ProviderID == "" {
		updated.Spec.ProviderID = r.config.Configuration.ProviderID
	}
	if !equality.Semantic.DeepEqual(existing, updated) {
		if existing, err = nodes.Update(ctx, updated, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("update node %s: %w", r.config.Name, err)
		}
	}
	r.observe(ctx, existing)
	return nil
}

// watch observes the Node object until ctx ends.
func (r *Reporter) watch(ctx context.Context) {
	informer := r.config.Client.Watch(v1.SchemeGroupVersion.WithResource("nodes"), "", fields.OneTermEqualSelector(metav1.ObjectNameField, r.config.Name))
	_, err := client.Follow(ctx, informer, cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) {
			r.mu.Lock()
			r.watched = true
			r.mu.Unlock()
			r.observe(ctx, o.(*v1.Node))
		},
		UpdateFunc: func(_, o any) { r.observe(ctx, o.(*v1.Node)) },
		DeleteFunc: func(any) {
			if *r.config.Configuration.RegisterNode {
				r.mu.Lock()
				r.withdrawn = r.node != nil && r.node.Spec.Unschedulable
				r.node, r.watched = nil, false
				r.mu.Unlock()
				r.Update()
			}
		},
	})
	if err != nil {
		supervise.Fail(ctx, err)
	}
	<-ctx.Done()
}

// observe records a new version of the Node object and passes its pod CIDR to
// the runtime.
func (r *Reporter) observe(ctx context.Context, node *v1.Node) {
	cidr := strings.Join(node.Spec.PodCIDRs, ",")
	if cidr == "" {
		cidr = node.Spec.PodCIDR
	}
	if cidr == "" {
		cidr = r.config.Configuration.PodCIDR
	}
	r.mu.Lock()
	before := r.node
	r.node, r.withdrawn = node, false
	first := false
	if len(node.Status.Allocatable) > 0 {
		first = !r.registered
		r.allocatable, r.registered = node.Status.Allocatable, true
	}
	r.podCIDR = cidr
	var changed []string
	if cordoned := node.Spec.Unschedulable; cordoned != r.cordoned {
		r.cordoned, changed = cordoned, []string{"NodeSchedulable"}
		if cordoned {
			changed = []string{"NodeNotSchedulable"}
		}
	}
	r.mu.Unlock()
	r.recordTransitions(changed)
	r.sendPodCIDR(ctx)
	if first {
		r.config.Registered()
	}
	r.config.Observed(before, node)
}

// sendPodCIDR passes the node's pod CIDR to the runtime, unless the runtime has
// it.
func (r *Reporter) sendPodCIDR(ctx context.Context) {
	r.mu.Lock()
	cidr, sent := r.podCIDR, r.sentPodCIDR
	r.mu.Unlock()
	if cidr == "" || cidr == sent {
		return
	}
	err := r.config.Runtime.UpdateRuntimeConfig(ctx, &runtimeapi.RuntimeConfig{NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: cidr}})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Passing the pod CIDR to the runtime failed, will try again", "podCIDR", cidr)
		return
	}
	r.mu.Lock()
	r.sentPodCIDR = cidr
	r.mu.Unlock()
	r.Update()
}

// report writes the status if it changed or if a report is due, and sets when the
// next one is: after ReportFrequency, or after a change up to half of it earlier or
// later, so that nodes that start together do not all report at the same time. It
// registers a node that was deleted, unless that was cordoned: somebody removes the
// machine then. It takes at most UpdateFrequency.
func (r *Reporter) report(ctx context.Context, due *time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, r.config.Configuration.NodeStatusUpdateFrequency.Duration)
	defer cancel()
	r.sendPodCIDR(ctx)
	r.mu.Lock()
	node, watched, withdrawn := r.node, r.watched, r.withdrawn
	r.mu.Unlock()
	switch {
	case node != nil:
	case withdrawn || !*r.config.Configuration.RegisterNode:
		return nil
	default:
		return r.register(ctx)
	}
	facts, err := r.facts(ctx)
	if err != nil {
		return err
	}
	if why := r.notReadyReason(); why != "" {
		facts.NotReady = append(slices.Clone(facts.NotReady), why)
	}
	after := node.DeepCopy()
	after.Status = Status(facts, &node.Status)
	changed := due.IsZero() || Changed(&node.Status, &after.Status)
	if !changed && time.Now().Before(*due) {
		return nil
	}
	written, err := r.patchStatus(ctx, &node.Status, &after.Status)
	if apierrors.IsNotFound(err) && *r.config.Configuration.RegisterNode {
		if watched { // which will show the deletion, and what was deleted
			return nil
		}
		return r.register(ctx)
	}
	if err != nil {
		return err
	}
	period := r.config.Configuration.NodeStatusReportFrequency.Duration
	if changed {
		period = period/2 + rand.N(period)
	}
	*due = time.Now().Add(period)
	r.recordTransitions(transitions(&node.Status, &after.Status))
	if was, is := node.Status.NodeInfo.BootID, after.Status.NodeInfo.BootID; was != "" && is != "" && was != is {
		r.config.Recorder.Eventf(Reference(r.config.Name), v1.EventTypeWarning, "Rebooted", "Node %s has been rebooted, boot id: %s", r.config.Name, is)
	}
	r.mu.Lock()
	newer := r.node == node
	if newer {
		r.node = written
	}
	r.mu.Unlock()
	if newer {
		r.config.Observed(node, written)
	}
	return nil
}

// recordTransitions records an event for each reason.
func (r *Reporter) recordTransitions(reasons []string) {
	for _, reason := range reasons {
		r.config.Recorder.Eventf(Reference(r.config.Name), v1.EventTypeNormal, reason, "Node %s status is now: %s", r.config.Name, reason)
	}
}

// Reference returns the reference to the node that events use.
func Reference(name string) *v1.ObjectReference {
	return &v1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: name, UID: types.UID(name)}
}

// readiness returns the status of the condition Ready.
func readiness(s *v1.NodeStatus) v1.ConditionStatus {
	for _, c := range s.Conditions {
		if c.Type == v1.NodeReady {
			return c.Status
		}
	}
	return v1.ConditionUnknown
}

// lease renews the Lease four times within its duration, until ctx ends. One
// attempt takes no longer than the Lease lasts.
func (r *Reporter) lease(ctx context.Context) {
	leases := r.config.Client.Kubernetes.CoordinationV1().Leases(v1.NamespaceNodeLease)
	period := time.Duration(r.config.Configuration.NodeLeaseDurationSeconds) * time.Second / 4
	timer := time.NewTimer(0)
	defer timer.Stop()
	var current *coordinationv1.Lease
	var failures failureLog
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		attempt, cancel := context.WithTimeout(ctx, time.Duration(r.config.Configuration.NodeLeaseDurationSeconds)*time.Second)
		err := r.renew(attempt, leases, &current)
		cancel()
		if err != nil && ctx.Err() == nil {
			if failures.due(time.Now()) {
				klog.FromContext(ctx).Error(err, "Renewing the node's lease failed, will try again", "node", r.config.Name)
			}
			timer.Reset(min(period, time.Second))
			continue
		}
		failures = failureLog{}
		timer.Reset(period)
	}
}

// RuntimeError returns why the container runtime does not answer, nil if it
// does.
func (r *Reporter) RuntimeError() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.runtimeDown
}
