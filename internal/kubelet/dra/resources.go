package dra

import (
	"fmt"
	"iter"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/kubelet/dra/checkpoint"
)

// request is a part of a claim that a container uses. Without a name it is all
// of the claim.
type request struct {
	claim key
	name  string
}

// claimName returns the ResourceClaim that an entry in the pod's resourceClaims
// stands for. ok is false if the pod needs none.
func claimName(pod *v1.Pod, entry string) (name string, ok bool, err error) {
	for i := range pod.Spec.ResourceClaims {
		if pod.Spec.ResourceClaims[i].Name != entry {
			continue
		}
		name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil || name == nil {
			return "", false, err
		}
		return *name, true, nil
	}
	return "", false, fmt.Errorf("the pod has no resource claim %q", entry)
}

// requests returns what a container uses of claims, in its own order, and of the
// claim of the pod's extended resources.
func requests(pod *v1.Pod, c *v1.Container) ([]request, error) {
	if err := checkClaims(pod); err != nil {
		return nil, err
	}
	var out []request
	for _, used := range c.Resources.Claims {
		name, ok, err := claimName(pod, used.Name)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, request{key{pod.Namespace, name}, used.Request})
		}
	}
	extended := pod.Status.ExtendedResourceClaimStatus
	if extended == nil {
		return out, nil
	}
	for _, mapping := range extended.RequestMappings {
		amount := c.Resources.Requests[v1.ResourceName(mapping.ResourceName)]
		if mapping.ContainerName == c.Name && !amount.IsZero() {
			out = append(out, request{key{pod.Namespace, extended.ResourceClaimName}, mapping.RequestName})
		}
	}
	return out, nil
}

// devices returns the devices of a claim that belong to a request, with their
// drivers, in a fixed order.
func (c *claim) devices(name string) iter.Seq2[string, *checkpoint.Device] {
	return func(yield func(string, *checkpoint.Device) bool) {
		for _, driver := range c.drivers() {
			for i := range c.DriverState[driver].Devices {
				d := &c.DriverState[driver].Devices[i]
				belongs := name == "" || len(d.RequestNames) == 0 ||
					slices.ContainsFunc(d.RequestNames, func(of string) bool { return resourceclaim.BaseRequestRef(of) == resourceclaim.BaseRequestRef(name) })
				if belongs && !yield(driver, d) {
					return
				}
			}
		}
	}
}

// Configure adds the devices of the container's claims to its configuration.
func (m *Manager) Configure(pod *v1.Pod, c *v1.Container, config *runtimeapi.ContainerConfig) error {
	used, err := requests(pod, c)
	if err != nil {
		return err
	}
	for _, r := range used {
		of := m.state.get(r.claim)
		if of == nil || !of.uses(pod.UID) || !of.prepared() {
			return fmt.Errorf("the ResourceClaim %s is not prepared", r.claim.name)
		}
		for _, d := range of.devices(r.name) {
			for _, id := range d.CDIDeviceIDs {
				if !slices.ContainsFunc(config.CDIDevices, func(have *runtimeapi.CDIDevice) bool { return have.GetName() == id }) {
					config.CDIDevices = append(config.CDIDevices, &runtimeapi.CDIDevice{Name: id})
				}
			}
		}
	}
	return nil
}

// ResourcesStatus returns the health of the devices of the container's claims,
// as its status shows it (KEP-4680).
func (m *Manager) ResourcesStatus(pod *v1.Pod, c *v1.Container) []v1.ResourceStatus {
	if checkClaims(pod) != nil { // nothing is prepared
		return nil
	}
	var out []v1.ResourceStatus
	messages := m.config.Features.Enabled(feature.ResourceHealthStatusMessage)
	for _, used := range c.Resources.Claims {
		name, ok, err := claimName(pod, used.Name)
		if err != nil || !ok {
			continue
		}
		of := m.state.get(key{pod.Namespace, name})
		if of == nil || !of.uses(pod.UID) {
			continue
		}
		st := v1.ResourceStatus{Name: v1.ResourceName("claim:" + used.Name)}
		if used.Request != "" {
			st.Name += v1.ResourceName("/" + used.Request)
		}
		for driver, d := range of.devices(used.Request) {
			entry := v1.ResourceHealth{ResourceID: v1.ResourceID(driver + "/" + d.PoolName + "/" + d.DeviceName)}
			if len(d.CDIDeviceIDs) > 0 {
				entry.ResourceID = v1.ResourceID(d.CDIDeviceIDs[0])
			}
			if slices.ContainsFunc(st.Resources, func(have v1.ResourceHealth) bool { return have.ResourceID == entry.ResourceID }) {
				continue
			}
			var message string
			if entry.Health, message = m.health.get(device{driver, d.PoolName, d.DeviceName}); messages && message != "" {
				entry.Message = &message
			}
			if before := shown(pod, c.Name, st.Name, entry.ResourceID); before != nil && m.health.early(driver, time.Now()) {
				entry = *before
			}
			st.Resources = append(st.Resources, entry)
		}
		if len(st.Resources) > 0 {
			out = append(out, st)
		}
	}
	return out
}

// shown returns what the status of the pod says of the health of a device, nil if
// nothing.
func shown(pod *v1.Pod, container string, name v1.ResourceName, id v1.ResourceID) *v1.ResourceHealth {
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Name != container {
			continue
		}
		for _, resource := range pod.Status.ContainerStatuses[i].AllocatedResourcesStatus {
			for k := range resource.Resources {
				if resource.Name == name && resource.Resources[k].ResourceID == id {
					return &resource.Resources[k]
				}
			}
		}
	}
	return nil
}

// DynamicResources returns the claims of a container with all of their devices,
// for the pod resources API.
func (m *Manager) DynamicResources(pod *v1.Pod, c *v1.Container) []*podresources.DynamicResource {
	used, err := requests(pod, c)
	if err != nil { // nothing is prepared
		return nil
	}
	var out []*podresources.DynamicResource
	for i, r := range used {
		of := m.state.get(r.claim)
		listed := slices.ContainsFunc(used[:i], func(before request) bool { return before.claim == r.claim })
		if of == nil || !of.uses(pod.UID) || listed {
			continue
		}
		entry := &podresources.DynamicResource{ClaimName: of.ClaimName, ClaimNamespace: of.Namespace}
		for driver, d := range of.devices("") {
			resource := &podresources.ClaimResource{DriverName: driver, PoolName: d.PoolName, DeviceName: d.DeviceName}
			if d.ShareID != nil {
				id := string(*d.ShareID)
				resource.ShareId = &id
			}
			for _, id := range d.CDIDeviceIDs {
				resource.CdiDevices = append(resource.CdiDevices, &podresources.CDIDevice{Name: id})
			}
			entry.ClaimResources = append(entry.ClaimResources, resource)
		}
		out = append(out, entry)
	}
	return out
}
