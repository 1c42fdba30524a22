package dynamicresources

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// extendedResources returns the resources that the pod requests and that
// devices may satisfy, in order.
func (p *plugin) extendedResources(pod *framework.PodInfo) []v1.ResourceName {
	var names []v1.ResourceName
	for name, amount := range pod.Requests.Scalar {
		if amount > 0 && p.extended.Class(name) != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// extendedClaim returns a claim for the extended resources that a node does not
// have itself, and which request of it is for which container. It returns nil
// if the node has all of them.
func (p *plugin) extendedClaim(names []v1.ResourceName, pod *v1.Pod, n *framework.NodeInfo) (*resourceapi.ResourceClaim, []v1.ContainerExtendedResourceRequest) {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		GenerateName: pod.Name + "-extended-resources-",
		Namespace:    pod.Namespace,
		UID:          pendingUID(pod),
		Annotations:  map[string]string{resourceapi.ExtendedResourceClaimAnnotation: "true"},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: new(true),
		}},
	}}
	var mappings []v1.ContainerExtendedResourceRequest
	for number, name := range names {
		class := p.extended.Class(name)
		if class == nil || !p.extended.OnNode(name, n) {
			continue
		}
		requests, mapped := requestsFor(pod, number, name, class.Name)
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, requests...)
		mappings = append(mappings, mapped...)
	}
	if len(mappings) == 0 {
		return nil, nil
	}
	return claim, mappings
}

// isReported reports whether the pod's status names claim as the claim of its
// extended resources. Only PreBind writes that field, with the requests that
// the kubelet needs.
func isReported(pod *v1.Pod, claim *resourceapi.ResourceClaim) bool {
	status := pod.Status.ExtendedResourceClaimStatus
	return status != nil && status.ResourceClaimName == claim.Name
}

// pendingUID identifies the claim for a pod's extended resources until it is
// created.
func pendingUID(pod *v1.Pod) types.UID { return pod.UID + "-extended-resources" }

// requestsFor returns a request for each container that requests a resource. A
// container that has ended before others start leaves its devices to one that
// wants as many.
func requestsFor(pod *v1.Pod, number int, name v1.ResourceName, class string) (requests []resourceapi.DeviceRequest, mappings []v1.ContainerExtendedResourceRequest) {
	reusable := map[int64]string{} // names of requests by count
	add := func(index int, c *v1.Container, ends bool) {
		quantity, ok := c.Resources.Requests[name]
		count := quantity.Value()
		if !ok || count <= 0 {
			return
		}
		request, reuse := reusable[count], ends
		if request == "" || !reuse {
			request = fmt.Sprintf("container-%d-request-%d", index, number)
			requests = append(requests, resourceapi.DeviceRequest{Name: request, Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count,
			}})
		}
		mappings = append(mappings, v1.ContainerExtendedResourceRequest{ContainerName: c.Name, ResourceName: string(name), RequestName: request})
		reusable[count] = request
	}
	inits := len(pod.Spec.InitContainers)
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; podquery.IsSidecar(c) {
			add(i, c, false)
		}
	}
	clear(reusable) // sidecars keep their devices
	for i := range pod.Spec.Containers {
		add(inits+i, &pod.Spec.Containers[i], false)
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; !podquery.IsSidecar(c) {
			add(i, c, true)
		}
	}
	return requests, mappings
}
