package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/kubelet/dra/checkpoint"
)

// maxClaims is how many claims a node serves of a pod. A name of a claim is looked for
// in the lists of the pod, for each container and status.
const maxClaims = 256

// checkClaims returns an error for a pod with more claims than that.
func checkClaims(pod *v1.Pod) error {
	if n := len(pod.Spec.ResourceClaims); n > maxClaims {
		return fmt.Errorf("the pod has %d resource claims; a node serves at most %d of a pod", n, maxClaims)
	}
	return nil
}

// use is a claim that a pod uses.
type use struct {
	key
	generated bool // from a template, so that the claim has to belong to the pod
}

// uses returns the claims of a pod, sorted, including the claim of its extended
// resources.
func uses(pod *v1.Pod) ([]use, error) {
	if len(pod.Spec.ResourceClaims) == 0 && pod.Status.ExtendedResourceClaimStatus == nil {
		return nil, nil
	}
	if err := checkClaims(pod); err != nil {
		return nil, err
	}
	generated := make(map[string]bool)
	for i := range pod.Spec.ResourceClaims {
		name, fromTemplate, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return nil, err
		}
		if name != nil { // nil: the pod needs none
			generated[*name] = generated[*name] || fromTemplate
		}
	}
	if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil && !generated[extended.ResourceClaimName] {
		generated[extended.ResourceClaimName] = false
	}
	out := make([]use, 0, len(generated))
	for _, name := range slices.Sorted(maps.Keys(generated)) {
		out = append(out, use{key{pod.Namespace, name}, generated[name]})
	}
	return out, nil
}

func keysOf(uses []use) []key {
	out := make([]key, len(uses))
	for i, u := range uses {
		out[i] = u.key
	}
	return out
}

// Prepared reports whether the claims of the pod are prepared as far as this
// kubelet, or an earlier one, knows.
func (m *Manager) Prepared(pod *v1.Pod) bool {
	used, err := uses(pod)
	if err != nil {
		return false
	}
	for _, u := range used {
		if c := m.state.get(u.key); c == nil || !c.uses(pod.UID) || !c.prepared() {
			return false
		}
	}
	return true
}

// Prepare has the drivers prepare the claims of a pod that they have not
// prepared since this kubelet started. Unprepare has to be called once the pod
// has ended, also after an error.
func (m *Manager) Prepare(ctx context.Context, pod *v1.Pod) error {
	used, err := uses(pod)
	if err == nil && len(used) == 0 {
		return nil
	}
	began := time.Now()
	if err == nil {
		err = m.prepare(ctx, pod, used)
	}
	m.ended("PrepareResources", pod.UID, began, err)
	if err != nil {
		return fmt.Errorf("prepare dynamic resources: %w", err)
	}
	return nil
}

func (m *Manager) prepare(ctx context.Context, pod *v1.Pod, used []use) error {
	unlock, err := m.locks.lock(ctx, keysOf(used))
	if err != nil {
		return err
	}
	defer unlock()
	claims := make(map[key]*claim, len(used))
	referenced := make(map[key]*claim)
	for _, u := range used {
		c := m.state.get(u.key)
		if c == nil || !c.uses(pod.UID) {
			if c, err = m.fetch(ctx, pod, u, c); err != nil {
				return err
			}
			c.PodUIDs.Insert(string(pod.UID))
			referenced[u.key] = c
		}
		claims[u.key] = c
	}
	// No driver may be missing, because a pod that waits for one that was never
	// installed could otherwise not be deleted.
	todo := make(map[string][]*claim)
	for _, u := range used {
		c := claims[u.key]
		for _, driver := range c.drivers() {
			if !c.ready.Has(driver) {
				todo[driver] = append(todo[driver], c)
			}
			if referenced[u.key] == nil && c.ready.Has(driver) {
				continue
			}
			if _, err := m.drivers.plugin(driver); err != nil {
				return err
			}
		}
	}
	if len(referenced) > 0 {
		if err := m.state.change(referenced); err != nil {
			return err
		}
	}
	return m.callPrepare(ctx, todo)
}

// fetch reads a claim that the pod does not use yet from the API server. known
// is the state of the claim if other pods use it, or nil. It returns an error
// if the pod may not use the claim on this node.
func (m *Manager) fetch(ctx context.Context, pod *v1.Pod, u use, known *claim) (*claim, error) {
	if m.config.Client == nil {
		return nil, fmt.Errorf("ResourceClaim %s: the kubelet has no API server to read it from", u.name)
	}
	object, err := m.config.Client.ResourceV1().ResourceClaims(u.namespace).Get(ctx, u.name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("fetch ResourceClaim %s: %w", u.name, err)
	}
	groups := m.config.Features.Enabled(feature.DRAWorkloadResourceClaims)
	if u.generated {
		if err := resourceclaim.IsForPod(pod, object, groups); err != nil {
			return nil, err
		}
	}
	if !resourceclaim.IsReservedForPod(pod, object, groups) {
		return nil, fmt.Errorf("pod %s (%s) is not allowed to use ResourceClaim %s (%s)", pod.Name, pod.UID, object.Name, object.UID)
	}
	if err := m.allocatedHere(object); err != nil {
		return nil, fmt.Errorf("ResourceClaim %s: %w", object.Name, err)
	}
	if known != nil && known.ClaimUID != object.UID {
		return nil, fmt.Errorf("old ResourceClaim with same name %s and different UID %s still exists (previous pod force-deleted?!)", object.Name, known.ClaimUID)
	}
	if known != nil {
		return known.clone(), nil
	}
	c := &claim{
		Claim: checkpoint.Claim{
			ClaimUID: object.UID, ClaimName: object.Name, Namespace: object.Namespace,
			PodUIDs: sets.Set[string]{}, DriverState: map[string]checkpoint.DriverState{},
		},
		ready: sets.Set[string]{},
	}
	for i := range object.Status.Allocation.Devices.Results {
		c.DriverState[object.Status.Allocation.Devices.Results[i].Driver] = checkpoint.DriverState{}
	}
	return c, nil
}

// allocatedHere returns an error if the claim is not allocated, or only for
// other nodes.
func (m *Manager) allocatedHere(object *resourceapi.ResourceClaim) error {
	if object.Status.Allocation == nil {
		return errors.New("not allocated")
	}
	selector, node := object.Status.Allocation.NodeSelector, m.config.Node()
	if selector == nil || node == nil {
		return nil
	}
	nodes, err := nodeaffinity.NewNodeSelector(selector)
	if err != nil {
		return err
	}
	if !nodes.Match(node) {
		return fmt.Errorf("its devices are not available on node %s", node.Name)
	}
	return nil
}

// callPrepare calls each driver once for all of its claims, and records what is
// prepared, also if a driver fails.
func (m *Manager) callPrepare(ctx context.Context, todo map[string][]*claim) error {
	done := make(map[key]*claim)
	var failed error
	for _, driver := range slices.Sorted(maps.Keys(todo)) {
		var prepared map[types.UID][]checkpoint.Device
		prepared, failed = m.drivers.prepare(ctx, driver, todo[driver])
		for _, c := range todo[driver] {
			devices, ok := prepared[c.ClaimUID]
			if !ok {
				continue
			}
			if done[c.key()] == nil {
				done[c.key()] = m.state.get(c.key()).clone()
			}
			done[c.key()].DriverState[driver] = checkpoint.DriverState{Devices: devices}
			done[c.key()].ready.Insert(driver)
		}
		if failed != nil {
			break
		}
	}
	if len(done) > 0 {
		failed = errors.Join(failed, m.state.change(done))
	}
	return failed
}

// prepare calls NodePrepareResources. It returns the devices of the claims that
// are prepared, none of them nil, also with an error.
func (r *Registry) prepare(ctx context.Context, driver string, claims []*claim) (map[types.UID][]checkpoint.Device, error) {
	p, err := r.plugin(driver)
	if err != nil {
		return nil, err
	}
	answer, err := call(ctx, r.timeout, p.client.NodePrepareResources, &drapb.NodePrepareResourcesRequest{Claims: messages(claims)})
	if err != nil {
		return nil, fmt.Errorf("NodePrepareResources: %w", err)
	}
	prepared := make(map[types.UID][]checkpoint.Device, len(claims))
	err = settle("NodePrepareResources", claims, answer.GetClaims(), func(c *claim, of *drapb.NodePrepareResourceResponse) error {
		if n := len(of.GetDevices()); n > maxClaimDevices {
			return fmt.Errorf("the driver has prepared %d devices, more than %d", n, maxClaimDevices)
		}
		devices := make([]checkpoint.Device, 0, len(of.GetDevices()))
		for _, d := range of.GetDevices() {
			device := checkpoint.Device{PoolName: d.GetPoolName(), DeviceName: d.GetDeviceName(), RequestNames: d.GetRequestNames(), CDIDeviceIDs: d.GetCdiDeviceIds()}
			if d.ShareId != nil {
				id := types.UID(d.GetShareId())
				device.ShareID = &id
			}
			devices = append(devices, device)
		}
		prepared[c.ClaimUID] = devices
		return nil
	})
	return prepared, err
}
