// Package dynamicresources allocates devices to the ResourceClaims of pods
// (KEP-4381). The allocator comes from k8s.io/dynamic-resource-allocation.
//
//	PreEnqueue   the claims exist
//	PreFilter    the claims, their classes, the slices ──► allocator
//	Filter       allocator ──► allocation of each claim on this node
//	Score        the alternatives that the devices of a node satisfy
//	PostFilter   deallocates a claim that keeps the pod from all nodes
//	Reserve      the allocations on the chosen node count for other pods
//	PreBind      writes allocation and reservation, waits for the devices
//	Unreserve    takes back what Reserve and PreBind did
//
// Requests for extended resources with a DeviceClass become a claim that
// PreBind creates (KEP-5004).
package dynamicresources

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/structured"
	kubescheduler "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/amount/celamount"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/extendedresource"
	"github.com/coracle-io/coracle/internal/scheduler/podgroup"
)

// Name is the plugin's name in configurations.
const Name = "DynamicResources"

// Factory describes the plugin.
func Factory() framework.Factory {
	return framework.WithArguments(Name, setDefaults, validate, newPlugin)
}

type plugin struct {
	client     kubernetes.Interface
	claims     *claims
	classes    resourcelisters.DeviceClassLister
	extended   *extendedresource.Classes
	slices     resourcelisters.ResourceSliceLister
	taintRules resourcelisters.DeviceTaintRuleLister // nil: the feature is off
	features   structured.Features
	celCache   *cel.Cache
	handle     *framework.Handle

	filterTimeout, bindingTimeout time.Duration

	states                           framework.StateKey[*state]
	skip, cannotAllocate, notOnNode  *framework.Status
	timedOut, noNewClaims, deferring *framework.Status
	staleClaim                       *framework.Status
}

func newPlugin(ctx context.Context, a *kubescheduler.DynamicResourcesArgs, h *framework.Handle) (framework.Plugin, error) {
	resources := h.Informers.Resource().V1()
	extended, err := extendedresource.New(ctx, h.Informers)
	if err != nil {
		return nil, err
	}
	unresolvable := func(reason string) *framework.Status {
		return framework.NewStatus(framework.UnschedulableAndUnresolvable, Name, reason)
	}
	p := &plugin{
		client:         h.Client,
		claims:         sharedClaims(h),
		classes:        resources.DeviceClasses().Lister(),
		extended:       extended,
		slices:         resources.ResourceSlices().Lister(),
		features:       featuresOf(h.Features),
		celCache:       newCELCache(h.Features),
		handle:         h,
		bindingTimeout: a.BindingTimeout.Duration,
		states:         framework.NewStateKey[*state](h),
		skip:           framework.NewStatus(framework.Skip, Name),
		cannotAllocate: unresolvable("cannot allocate all claims"),
		notOnNode:      unresolvable("resourceclaim not available on the node"),
		timedOut:       framework.Transient(Name, "timed out trying to allocate devices"),
		staleClaim:     unresolvable("cannot schedule extended resource claim"),
		noNewClaims:    framework.NewStatus(framework.Unschedulable, Name, "no new claims to deallocate"),
		deferring:      framework.NewStatus(framework.Unschedulable, Name, "still not schedulable"),
	}
	if p.features.DeviceTaints && h.Features.Enabled(feature.DRADeviceTaintRules) {
		p.taintRules = resources.DeviceTaintRules().Lister()
	}
	if h.Features.Enabled(feature.DRASchedulerFilterTimeout) {
		p.filterTimeout = a.FilterTimeout.Duration
	}
	return p, nil
}

// featuresOf returns what the allocator may do. DRAAdminAccess and
// DRAPrioritizedList cannot be disabled.
func featuresOf(gates *feature.Set) structured.Features {
	return structured.Features{
		AdminAccess:             true,
		PrioritizedList:         true,
		CompatibilityGroups:     gates.Enabled(feature.DRADeviceCompatibilityGroups),
		ConsumableCapacity:      gates.Enabled(feature.DRAConsumableCapacity),
		DerivedAttributes:       gates.Enabled(feature.DRADerivedAttributes),
		DeviceBindingAndStatus:  gates.Enabled(feature.DRADeviceBindingConditions),
		DeviceTaints:            gates.Enabled(feature.DRADeviceTaints),
		FractionalCapacityRange: gates.Enabled(feature.DRAFractionalCapacityRange),
		ListTypeAttributes:      gates.Enabled(feature.DRAListTypeAttributes),
		PartitionableDevices:    gates.Enabled(feature.DRAPartitionableDevices),
	}
}

// state holds the pod's claims and their allocations during one attempt.
type state struct {
	claims []*podClaim
	// extended are the extended resources that devices may satisfy.
	extended  []v1.ResourceName
	allocator structured.Allocator // nil: there is nothing to allocate
	nodes     map[string]*allocation
	// left is what remains of the filter timeout.
	left time.Duration
	// unavailable are the indexes of claims that made Filter reject a node.
	unavailable map[int]bool
	// reserved is the allocation in nodes that Reserve chose; nil before.
	reserved *allocation
	// held are the allocations that Reserve made count.
	held []*pendingAllocation
	// stale is a claim for extended resources of an attempt that did not end.
	stale *resourceapi.ResourceClaim
	// created is the claim for extended resources that PreBind created.
	created *resourceapi.ResourceClaim
}

// podClaim is a claim of the pod.
type podClaim struct {
	*resourceapi.ResourceClaim
	// nodes are those where the allocated devices are; nil is all.
	nodes *nodeaffinity.NodeSelector
	// shared is whether the allocation is one that is pending for another pod of a
	// group.
	shared bool
}

// allocation holds the devices that the pod gets on one node.
type allocation struct {
	// claims are copies of the claims that need devices, with their
	// allocations. The last one is of extended resources if mappings are there.
	claims   []*resourceapi.ResourceClaim
	mappings []v1.ContainerExtendedResourceRequest
}

// Name implements framework.Plugin.
func (*plugin) Name() string { return Name }

// PreEnqueue implements framework.PreEnqueuePlugin: pods wait for their claims.
func (p *plugin) PreEnqueue(_ context.Context, pod *framework.PodInfo) *framework.Status {
	if len(pod.Pod.Spec.ResourceClaims) == 0 {
		return nil
	}
	if _, err := p.claimsOf(pod.Pod); err != nil {
		return framework.NewStatus(framework.UnschedulableAndUnresolvable, Name, err.Error())
	}
	return nil
}

// claimsOf returns the claims that the pod's spec refers to. The error says
// which one cannot be used.
func (p *plugin) claimsOf(pod *v1.Pod) ([]*resourceapi.ResourceClaim, error) {
	var found []*resourceapi.ResourceClaim
	for i := range pod.Spec.ResourceClaims {
		name, mustCheckOwner, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return nil, err
		}
		if name == nil {
			continue // no claim is needed
		}
		claim, err := p.claims.get(pod.Namespace, *name)
		if err != nil {
			return nil, err
		}
		if claim.DeletionTimestamp != nil {
			return nil, fmt.Errorf("resourceclaim %q is being deleted", claim.Name)
		}
		if mustCheckOwner {
			if err := resourceclaim.IsForPod(pod, claim, false); err != nil {
				return nil, err
			}
		}
		found = append(found, claim)
	}
	return found, nil
}

// PreFilter implements framework.PreFilterPlugin.
func (p *plugin) PreFilter(ctx context.Context, cycle *framework.CycleState, pod *framework.PodInfo, _ *framework.Snapshot) (*framework.PreFilterResult, *framework.Status) {
	extended := p.extendedResources(pod)
	if len(pod.Pod.Spec.ResourceClaims) == 0 && len(extended) == 0 {
		return nil, p.skip
	}
	found, err := p.claimsOf(pod.Pod)
	if err != nil {
		return nil, framework.NewStatus(framework.UnschedulableAndUnresolvable, Name, err.Error())
	}
	s := &state{extended: extended, nodes: map[string]*allocation{}, unavailable: map[int]bool{}, left: p.filterTimeout}
	if len(extended) > 0 {
		claim := p.claims.extendedOf(pod.Pod)
		switch {
		case claim == nil || claim.Status.Allocation == nil:
		case isReported(pod.Pod, claim):
			found, s.extended = append(found, claim), nil
		default:
			s.stale = claim
			p.states.Put(cycle, s)
			return nil, p.staleClaim
		}
	}
	if len(found) == 0 && len(s.extended) == 0 {
		return nil, p.skip
	}
	allocate := len(s.extended) > 0
	for _, claim := range found {
		one := p.podClaim(pod.Pod, claim)
		s.claims = append(s.claims, one)
		if a := one.Status.Allocation; a != nil {
			if a.NodeSelector != nil {
				if one.nodes, err = nodeaffinity.NewNodeSelector(a.NodeSelector); err != nil {
					return nil, framework.AsStatus(Name, err)
				}
			}
			continue
		}
		allocate = true
		if status := p.canAllocate(claim); status != nil {
			return nil, status
		}
	}
	p.states.Put(cycle, s)
	if !allocate {
		return nil, nil
	}
	slices, err := p.listSlices()
	if err != nil {
		return nil, framework.AsStatus(Name, err)
	}
	celamount.Bound()
	s.allocator, err = structured.NewAllocator(ctx, p.features, p.claims.allocated(p.features.ConsumableCapacity), classLister{p.classes}, slices, p.celCache)
	return nil, framework.AsStatus(Name, err)
}

// podClaim returns a claim as the pod sees it. Pods of a group are decided before
// the allocations of the earlier ones are written, so an allocation that is pending
// counts for them. Other pods wait until it is written.
func (p *plugin) podClaim(pod *v1.Pod, claim *resourceapi.ResourceClaim) *podClaim {
	one := &podClaim{ResourceClaim: claim}
	if _, ok := podgroup.Of(pod); !ok || claim.Status.Allocation != nil {
		return one
	}
	if pending := p.claims.pendingOf(claim.UID); pending != nil {
		one.ResourceClaim, one.shared = claim.DeepCopy(), true
		one.Status.Allocation = pending
	}
	return one
}

// canAllocate rejects claims that no node can have devices for.
func (p *plugin) canAllocate(claim *resourceapi.ResourceClaim) *framework.Status {
	reject := func(format string, args ...any) *framework.Status {
		return framework.NewStatus(framework.UnschedulableAndUnresolvable, Name, fmt.Sprintf(format, args...))
	}
	if p.claims.pendingOf(claim.UID) != nil {
		return reject("resource claim %s/%s is in the process of being allocated", claim.Namespace, claim.Name)
	}
	for _, request := range claim.Spec.Devices.Requests {
		switch {
		case request.Exactly != nil:
			if err := p.hasClass(request.Exactly.DeviceClassName); err != nil {
				return reject("request %s: %s", request.Name, err)
			}
		case len(request.FirstAvailable) > 0:
			for _, sub := range request.FirstAvailable {
				if err := p.hasClass(sub.DeviceClassName); err != nil {
					return reject("request %s/%s: %s", request.Name, sub.Name, err)
				}
			}
		default:
			return reject("request %s: unsupported request type", request.Name)
		}
	}
	return nil
}

func (p *plugin) hasClass(name string) error {
	_, err := p.classes.Get(name)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("device class %s does not exist", name)
	}
	return err
}

// classLister implements structured.DeviceClassLister.
type classLister struct {
	resourcelisters.DeviceClassLister
}

func (l classLister) List() ([]*resourceapi.DeviceClass, error) {
	return l.DeviceClassLister.List(labels.Everything())
}

// Filter implements framework.FilterPlugin.
func (p *plugin) Filter(ctx context.Context, cycle *framework.CycleState, pod *framework.PodInfo, n *framework.NodeInfo) *framework.Status {
	s, ok := p.states.Get(cycle)
	if !ok {
		return nil
	}
	fits := &allocation{}
	available := true
	for i, claim := range s.claims {
		if claim.Status.Allocation == nil {
			fits.claims = append(fits.claims, claim.ResourceClaim)
			continue
		}
		if claim.nodes != nil && !claim.nodes.Match(n.Node) || p.bindingFailed(claim.ResourceClaim) {
			s.unavailable[i], available = true, false
		}
	}
	if !available {
		return p.notOnNode
	}
	if extended, mappings := p.extendedClaim(s.extended, pod.Pod, n); extended != nil {
		fits.claims, fits.mappings = append(fits.claims, extended), mappings
	}
	if len(fits.claims) == 0 {
		s.nodes[n.Name] = fits
		return nil
	}
	results, status := p.allocate(ctx, s, n.Node, fits.claims)
	if status != nil {
		return status
	}
	for i, claim := range fits.claims {
		claim = claim.DeepCopy()
		claim.Status.Allocation = &results[i]
		fits.claims[i] = claim
	}
	s.nodes[n.Name] = fits
	return nil
}

// allocate searches devices for the claims on a node. Nodes are searched one
// after another, and all pods wait for the search, so the timeout is for all
// nodes together. A node gets half of the time that is left, so that a node
// with a long search does not prevent a node from being searched where devices
// are easy to find.
func (p *plugin) allocate(ctx context.Context, s *state, node *v1.Node, wanted []*resourceapi.ResourceClaim) ([]resourceapi.AllocationResult, *framework.Status) {
	limited := ctx
	if p.filterTimeout > 0 {
		if s.left <= 0 {
			return nil, p.timedOut
		}
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, s.left/2)
		defer cancel()
		began := time.Now()
		defer func() { s.left -= time.Since(began) }()
	}
	results, err := s.allocator.Allocate(limited, node, wanted)
	switch {
	case err == nil && len(results) == len(wanted):
		return results, nil
	case err == nil:
		return nil, p.cannotAllocate
	case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		return nil, p.timedOut
	case errors.Is(err, structured.ErrFailedAllocationOnNode):
		return nil, framework.NewStatus(framework.UnschedulableAndUnresolvable, Name, err.Error())
	}
	return nil, framework.AsStatus(Name, err)
}

// PostFilter implements framework.PostFilterPlugin. It deallocates a claim that
// only this pod uses and whose devices are not where the pod can run, or
// deletes a claim for its extended resources that an earlier attempt left.
func (p *plugin) PostFilter(ctx context.Context, cycle *framework.CycleState, pod *framework.PodInfo, _ *framework.Snapshot, _ *framework.NodeToStatus) (*framework.PostFilterResult, *framework.Status) {
	s, ok := p.states.Get(cycle)
	if !ok {
		return nil, p.noNewClaims
	}
	if s.stale != nil {
		if err := p.deleteStale(ctx, pod.Pod, s.stale); err != nil {
			return nil, framework.AsStatus(Name, err)
		}
		return nil, framework.NewStatus(framework.Unschedulable, Name, "deletion of ResourceClaim completed")
	}
	for i, claim := range s.claims {
		if !s.unavailable[i] || claim.shared || usedByOthers(claim.ResourceClaim, pod.Pod) {
			continue
		}
		update := claim.DeepCopy()
		update.Status = resourceapi.ResourceClaimStatus{}
		updated, err := p.client.ResourceV1().ResourceClaims(claim.Namespace).UpdateStatus(ctx, update, metav1.UpdateOptions{})
		if err != nil {
			return nil, framework.AsStatus(Name, fmt.Errorf("deallocate resourceclaim %s/%s: %w", claim.Namespace, claim.Name, err))
		}
		p.claims.wrote(claim.UID, updated)
		return nil, framework.NewStatus(framework.Unschedulable, Name, "deallocation of ResourceClaim completed")
	}
	return nil, p.deferring
}

// usedByOthers reports whether the claim is reserved for another than the pod.
func usedByOthers(claim *resourceapi.ResourceClaim, pod *v1.Pod) bool {
	for _, consumer := range claim.Status.ReservedFor {
		if consumer.UID != pod.UID {
			return true
		}
	}
	return false
}

// bindingConditions returns whether a device has all binding conditions, and
// the first failure condition that is true.
func bindingConditions(claim *resourceapi.ResourceClaim, r *resourceapi.DeviceRequestAllocationResult) (ready bool, failure *metav1.Condition) {
	if len(r.BindingConditions) == 0 {
		return true, nil
	}
	status := deviceStatus(claim, r)
	if status == nil {
		return false, nil
	}
	for _, name := range r.BindingFailureConditions {
		if c := apimeta.FindStatusCondition(status.Conditions, name); c != nil && c.Status == metav1.ConditionTrue {
			return false, c
		}
	}
	for _, name := range r.BindingConditions {
		if c := apimeta.FindStatusCondition(status.Conditions, name); c == nil || c.Status != metav1.ConditionTrue {
			return false, nil
		}
	}
	return true, nil
}

func deviceStatus(claim *resourceapi.ResourceClaim, r *resourceapi.DeviceRequestAllocationResult) *resourceapi.AllocatedDeviceStatus {
	for i := range claim.Status.Devices {
		d := &claim.Status.Devices[i]
		if d.Driver == r.Driver && d.Pool == r.Pool && d.Device == r.Device && ptr.Deref(d.ShareID, "") == string(ptr.Deref(r.ShareID, "")) {
			return d
		}
	}
	return nil
}
