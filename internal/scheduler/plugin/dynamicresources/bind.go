package dynamicresources

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/podgroup"
)

const (
	// bindingPoll is how often PreBind looks at binding conditions.
	bindingPoll = time.Second
	// writeGrace is how long a write of an allocation may take after PreBind was canceled.
	writeGrace = 5 * time.Second
)

// Reserve implements framework.ReservePlugin. The devices that Filter found on
// the node count as taken from now on.
func (p *plugin) Reserve(_ context.Context, cycle *framework.CycleState, _ *framework.PodInfo, node string) *framework.Status {
	s, ok := p.states.Get(cycle)
	if !ok {
		return nil
	}
	found, ok := s.nodes[node]
	if !ok {
		return framework.AsStatus(Name, fmt.Errorf("claim allocation not found for node %s", node))
	}
	s.reserved = found
	for _, claim := range found.claims {
		s.held = append(s.held, p.claims.reserve(claim))
	}
	for _, claim := range s.claims {
		if claim.shared {
			s.held = append(s.held, p.claims.reserve(claim.ResourceClaim))
		}
	}
	return nil
}

// Unreserve implements framework.ReservePlugin. A claim that is allocated
// already stays so, because the next attempt will probably want it again.
func (p *plugin) Unreserve(ctx context.Context, cycle *framework.CycleState, pod *framework.PodInfo, _ string) {
	s, ok := p.states.Get(cycle)
	if !ok {
		return
	}
	for _, held := range s.held {
		p.claims.release(held)
	}
	s.held = nil
	for _, claim := range s.claims {
		latest, err := p.claims.get(claim.Namespace, claim.Name)
		if err != nil || latest.UID != claim.UID || !resourceclaim.IsReservedForPod(pod.Pod, latest, false) {
			continue
		}
		if err := p.removeReservation(ctx, latest, pod.Pod.UID); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot remove the reservation of a claim", "resourceclaim", klog.KObj(claim), "pod", klog.KObj(pod.Pod))
		}
	}
	if s.created != nil {
		if err := p.deleteClaim(ctx, s.created); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot delete the claim for extended resources", "resourceclaim", klog.KObj(s.created), "pod", klog.KObj(pod.Pod))
		}
		s.created = nil
	}
}

// removeReservation removes a pod from status.reservedFor.
func (p *plugin) removeReservation(ctx context.Context, claim *resourceapi.ResourceClaim, pod types.UID) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": claim.UID},
		"status":   map[string]any{"reservedFor": []any{map[string]any{"$patch": "delete", "uid": pod}}},
	})
	if err != nil {
		return err
	}
	updated, err := p.client.ResourceV1().ResourceClaims(claim.Namespace).Patch(ctx, claim.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return err
	}
	p.claims.wrote(claim.UID, updated)
	return nil
}

// deleteStale deletes a claim for extended resources that an earlier attempt
// left. Another scheduler may have bound the pod with it in the meantime, so
// deleteStale asks the API.
func (p *plugin) deleteStale(ctx context.Context, pod *v1.Pod, claim *resourceapi.ResourceClaim) error {
	current, err := p.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if current.UID != pod.UID || current.Spec.NodeName != "" || isReported(current, claim) {
		return fmt.Errorf("pod %s/%s has changed: claim %s may be in use", pod.Namespace, pod.Name, claim.Name)
	}
	if err := p.deleteClaim(ctx, claim); err != nil {
		return fmt.Errorf("delete resourceclaim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}

// deleteClaim deletes a claim that the plugin created. An allocated claim has a
// finalizer, so it is deallocated first.
func (p *plugin) deleteClaim(ctx context.Context, claim *resourceapi.ResourceClaim) error {
	api := p.client.ResourceV1().ResourceClaims(claim.Namespace)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		current, err := api.Get(ctx, claim.Name, metav1.GetOptions{})
		if err != nil || current.UID != claim.UID {
			return err
		}
		if current.Status.Allocation != nil || len(current.Status.ReservedFor) > 0 {
			current.Status = resourceapi.ResourceClaimStatus{}
			if current, err = api.UpdateStatus(ctx, current, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
		if slices.Contains(current.Finalizers, resourceapi.Finalizer) {
			current.Finalizers = without(current.Finalizers)
			if _, err = api.Update(ctx, current, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
		return api.Delete(ctx, claim.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(claim.UID))})
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	p.claims.deleted(claim.UID)
	return nil
}

func without(finalizers []string) []string {
	return slices.DeleteFunc(finalizers, func(name string) bool { return name == resourceapi.Finalizer })
}

// PreBindPreFlight implements framework.PreBindPlugin.
func (p *plugin) PreBindPreFlight(_ context.Context, cycle *framework.CycleState, pod *framework.PodInfo, _ string) *framework.Status {
	s, ok := p.states.Get(cycle)
	if !ok || s.reserved == nil {
		return p.skip
	}
	if len(s.reserved.claims) > 0 {
		return nil
	}
	for _, claim := range s.claims {
		if !resourceclaim.IsReservedForPod(pod.Pod, claim.ResourceClaim, false) || !p.ready(claim.ResourceClaim) {
			return nil
		}
	}
	return p.skip
}

// PreBind implements framework.PreBindPlugin. It writes the allocations and
// reserves all claims for the pod, then waits until the devices are ready.
func (p *plugin) PreBind(ctx context.Context, cycle *framework.CycleState, pod *framework.PodInfo, _ string) *framework.Status {
	s, ok := p.states.Get(cycle)
	if !ok {
		return nil
	}
	pending := map[types.UID]*resourceapi.ResourceClaim{}
	for _, claim := range s.reserved.claims {
		pending[claim.UID] = claim
	}
	for _, claim := range s.claims {
		if claim.shared { // the other pod may not have written it
			pending[claim.UID] = claim.ResourceClaim
		}
	}
	var written []*resourceapi.ResourceClaim
	for _, claim := range s.claims {
		bound, err := p.bindClaim(ctx, pod.Pod, claim.ResourceClaim, pending[claim.UID])
		if err != nil {
			return framework.AsStatus(Name, err)
		}
		written = append(written, bound)
	}
	if extended := pending[pendingUID(pod.Pod)]; extended != nil {
		bound, err := p.bindExtended(ctx, s, pod.Pod, extended)
		if err != nil {
			return framework.AsStatus(Name, err)
		}
		written = append(written, bound)
	}
	return framework.AsStatus(Name, p.waitForDevices(ctx, pod.Pod, written))
}

// bindClaim reserves a claim for the pod and writes its allocation, if it has
// none yet. It returns the claim as it was written.
func (p *plugin) bindClaim(ctx context.Context, pod *v1.Pod, claim, allocated *resourceapi.ResourceClaim) (*resourceapi.ResourceClaim, error) {
	defer p.claims.lock(claim.UID)()
	api := p.client.ResourceV1().ResourceClaims(claim.Namespace)
	bound, err := p.claims.get(claim.Namespace, claim.Name)
	if err != nil {
		return nil, err
	}
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		update, write := bound.DeepCopy(), allocated
		if isWrittenByGroup(pod, update, allocated) {
			write = nil
		}
		if err := mayBind(update, claim, write != nil); err != nil {
			return err
		}
		var err error
		if write != nil && !slices.Contains(update.Finalizers, resourceapi.Finalizer) {
			update.Finalizers = append(update.Finalizers, resourceapi.Finalizer)
			update, err = api.Update(ctx, update, metav1.UpdateOptions{})
		}
		if err == nil {
			p.setStatus(update, pod, write)
			update, err = p.writeStatus(ctx, update)
		}
		if err == nil {
			bound = update
			return nil
		}
		if apierrors.IsConflict(err) {
			if current, gone := api.Get(ctx, claim.Name, metav1.GetOptions{}); gone == nil {
				bound = current
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reserve resourceclaim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	p.claims.wrote(claim.UID, bound)
	return bound, nil
}

// writeStatus writes the status of a claim, unless ctx has ended. A write that has begun
// goes on after that for writeGrace: if the API had taken an allocation of which the
// plugin does not know, the devices would go to another claim before the informer shows it.
func (p *plugin) writeStatus(ctx context.Context, claim *resourceapi.ResourceClaim) (*resourceapi.ResourceClaim, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	outlasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(writeGrace, cancel) })
	defer stop()
	return p.client.ResourceV1().ResourceClaims(claim.Namespace).UpdateStatus(outlasting, claim, metav1.UpdateOptions{})
}

// isWrittenByGroup reports whether another pod of a group has written the allocation
// that the pod wants.
func isWrittenByGroup(pod *v1.Pod, current, allocated *resourceapi.ResourceClaim) bool {
	if _, ok := podgroup.Of(pod); !ok || allocated == nil || current.Status.Allocation == nil {
		return false
	}
	return equality.Semantic.DeepEqual(current.Status.Allocation.Devices, allocated.Status.Allocation.Devices)
}

// mayBind returns an error if a claim has changed since the decision so that
// the pod cannot have it.
func mayBind(current, decided *resourceapi.ResourceClaim, allocate bool) error {
	switch {
	case current.UID != decided.UID || current.DeletionTimestamp != nil:
		return fmt.Errorf("claim %s got deleted in the meantime", decided.Name)
	case allocate && current.Status.Allocation != nil:
		return fmt.Errorf("claim %s got allocated elsewhere in the meantime", decided.Name)
	case !allocate && current.Status.Allocation == nil:
		return fmt.Errorf("claim %s got deallocated elsewhere in the meantime", decided.Name)
	}
	return nil
}

// setStatus sets what the pod needs in the status of a claim.
func (p *plugin) setStatus(claim *resourceapi.ResourceClaim, pod *v1.Pod, allocated *resourceapi.ResourceClaim) {
	if !resourceclaim.IsReservedForPod(pod, claim, false) {
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
	}
	if allocated == nil {
		return
	}
	claim.Status.Allocation = allocated.Status.Allocation.DeepCopy()
	if p.features.DeviceBindingAndStatus {
		claim.Status.Allocation.AllocationTimestamp = new(metav1.Now())
	}
}

// bindExtended creates the claim for extended resources, binds it, and tells
// the pod about it.
func (p *plugin) bindExtended(ctx context.Context, s *state, pod *v1.Pod, extended *resourceapi.ResourceClaim) (*resourceapi.ResourceClaim, error) {
	if old := p.claims.extendedOf(pod); old != nil { // of an attempt that did not end
		if err := p.deleteStale(ctx, pod, old); err != nil {
			return nil, err
		}
	}
	create := extended.DeepCopy()
	create.UID, create.Status = "", resourceapi.ResourceClaimStatus{}
	create.Finalizers = []string{resourceapi.Finalizer}
	api := p.client.ResourceV1().ResourceClaims(pod.Namespace)
	created, err := api.Create(ctx, create, metav1.CreateOptions{})
	if p.handle.ObserveClaim != nil {
		p.handle.ObserveClaim(err == nil)
	}
	if err != nil {
		return nil, fmt.Errorf("create claim for extended resources %v: %w", s.extended, err)
	}
	s.created = created
	update := created.DeepCopy()
	p.setStatus(update, pod, extended)
	if update, err = api.UpdateStatus(ctx, update, metav1.UpdateOptions{}); err != nil {
		return nil, fmt.Errorf("allocate resourceclaim %s/%s: %w", created.Namespace, created.Name, err)
	}
	s.created = update
	p.claims.wrote(extended.UID, update)
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status":   map[string]any{"extendedResourceClaimStatus": v1.PodExtendedResourceClaimStatus{RequestMappings: s.reserved.mappings, ResourceClaimName: update.Name}},
	})
	if err != nil {
		return nil, err
	}
	if _, err := p.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return nil, fmt.Errorf("update pod %s/%s ExtendedResourceClaimStatus: %w", pod.Namespace, pod.Name, err)
	}
	return update, nil
}

// ready reports whether all devices of a claim have their binding conditions.
func (p *plugin) ready(claim *resourceapi.ResourceClaim) bool {
	if !p.features.DeviceBindingAndStatus || claim.Status.Allocation == nil {
		return true
	}
	for i := range claim.Status.Allocation.Devices.Results {
		if ready, _ := bindingConditions(claim, &claim.Status.Allocation.Devices.Results[i]); !ready {
			return false
		}
	}
	return true
}

// bindingFailed reports whether the devices of an allocated claim have failed
// to become ready, or were given too long for that.
func (p *plugin) bindingFailed(claim *resourceapi.ResourceClaim) bool {
	if !p.features.DeviceBindingAndStatus || p.ready(claim) {
		return false
	}
	return p.isLate(claim) || failedDevice(claim) != nil
}

// isLate reports whether the devices of an allocated claim were given too long to
// become ready.
func (p *plugin) isLate(claim *resourceapi.ResourceClaim) bool {
	at := claim.Status.Allocation.AllocationTimestamp
	return at != nil && time.Since(at.Time) > p.bindingTimeout
}

// failedDevice returns the first binding failure condition that is true.
func failedDevice(claim *resourceapi.ResourceClaim) *metav1.Condition {
	for i := range claim.Status.Allocation.Devices.Results {
		if _, failure := bindingConditions(claim, &claim.Status.Allocation.Devices.Results[i]); failure != nil {
			return failure
		}
	}
	return nil
}

// Results of the wait for devices, with upstream's names.
const (
	devicesReady  = "success"
	devicesFailed = "failure"
	devicesLate   = "timeout"
	devicesLost   = "error"
)

// waitForDevices waits until all devices of the claims have their binding
// conditions, or the pod is deleted.
func (p *plugin) waitForDevices(ctx context.Context, pod *v1.Pod, written []*resourceapi.ResourceClaim) error {
	drivers := p.conditionedDrivers(written)
	if len(drivers) == 0 {
		return nil
	}
	began, result := time.Now(), devicesReady
	var err error
	if slices.ContainsFunc(written, func(claim *resourceapi.ResourceClaim) bool { return !p.ready(claim) }) {
		result, err = p.pollDevices(ctx, pod, written)
	}
	if p.handle.ObserveBindingConditions != nil {
		for _, driver := range drivers {
			p.handle.ObserveBindingConditions(driver, result, time.Since(began))
		}
	}
	return err
}

// conditionedDrivers returns the drivers of the claims' devices that have binding
// conditions, each once.
func (p *plugin) conditionedDrivers(written []*resourceapi.ResourceClaim) (drivers []string) {
	for _, claim := range written {
		if !p.features.DeviceBindingAndStatus || claim.Status.Allocation == nil {
			continue
		}
		for i := range claim.Status.Allocation.Devices.Results {
			r := &claim.Status.Allocation.Devices.Results[i]
			if len(r.BindingConditions) > 0 && !slices.Contains(drivers, r.Driver) {
				drivers = append(drivers, r.Driver)
			}
		}
	}
	return drivers
}

func (p *plugin) pollDevices(ctx context.Context, pod *v1.Pod, written []*resourceapi.ResourceClaim) (result string, err error) {
	result = devicesLost
	err = wait.PollUntilContextTimeout(ctx, bindingPoll, p.bindingTimeout, true, func(context.Context) (bool, error) {
		if p.handle.IsWanted != nil && !p.handle.IsWanted(pod.UID) {
			return false, fmt.Errorf("pod %s/%s got deleted in the meantime", pod.Namespace, pod.Name)
		}
		all := true
		for _, claim := range written {
			latest, err := p.claims.get(claim.Namespace, claim.Name)
			if err != nil {
				return false, err
			}
			if latest.Status.Allocation == nil {
				return false, fmt.Errorf("claim %s got deallocated elsewhere in the meantime", claim.Name)
			}
			if c := failedDevice(latest); c != nil {
				result = devicesFailed
				return false, fmt.Errorf("claim %s binding failed: reason=%s, message=%q", claim.Name, c.Reason, c.Message)
			}
			if p.ready(latest) {
				continue
			}
			if p.isLate(latest) {
				result = devicesLate
				return false, fmt.Errorf("claim %s binding timeout", claim.Name)
			}
			all = false
		}
		return all, nil
	})
	switch {
	case err == nil:
		return devicesReady, nil
	case wait.Interrupted(err) && ctx.Err() == nil:
		return devicesLate, fmt.Errorf("device binding timeout after %v", p.bindingTimeout)
	}
	return result, err
}
