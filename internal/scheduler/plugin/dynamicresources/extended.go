package dynamicresources

import (
	"fmt"
	"maps"
	"slices"
	"strings"

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
	for _, name := range names {
		class := p.extended.Class(name)
		if class == nil || !p.extended.OnNode(name, n) {
			continue
		}
		requests, mapped := requestsFor(pod, name, class.Name)
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, requests...)
		mappings = append(mappings, mapped...)
	}
	if len(mappings) == 0 {
		return nil, nil
	}
	slices.SortFunc(claim.Spec.Devices.Requests, func(a, b resourceapi.DeviceRequest) int { return strings.Compare(a.Name, b.Name) })
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

// requestsFor returns the requests for a resource, and which container uses which of
// them. A container that runs as long as the pod has a request of its own. An init
// container that ends uses those of later ones first, which do not run yet, and for the
// rest the largest request of all such init containers, of which one runs at a time.
func requestsFor(pod *v1.Pod, name v1.ResourceName, class string) (requests []resourceapi.DeviceRequest, mappings []v1.ContainerExtendedResourceRequest) {
	inits := len(pod.Spec.InitContainers)
	containers := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	ends := func(i int) bool { return i < inits && !podquery.IsSidecar(&containers[i]) }
	wanted := func(i int) int64 {
		quantity := containers[i].Resources.Requests[name]
		return quantity.Value()
	}
	use := func(i int, request string) {
		mappings = append(mappings, v1.ContainerExtendedResourceRequest{ContainerName: containers[i].Name, ResourceName: string(name), RequestName: request})
	}
	lasting := make([]*resourceapi.DeviceRequest, len(containers))
	for i := range containers {
		if count := wanted(i); count > 0 && !ends(i) {
			lasting[i] = requestOf(i, &containers[i], name, class, count)
			requests = append(requests, *lasting[i])
			use(i, lasting[i].Name)
		}
	}
	var largest *resourceapi.DeviceRequest
	var shared []int // indexes of the mappings to it
	for i := range inits {
		if !ends(i) {
			continue
		}
		missing := wanted(i)
		for _, later := range lasting[i:] {
			if later != nil && missing > 0 {
				use(i, later.Name)
				missing -= later.Exactly.Count
			}
		}
		if missing > 0 {
			shared = append(shared, len(mappings))
			use(i, "")
			if largest == nil || missing > largest.Exactly.Count {
				largest = requestOf(i, &containers[i], name, class, missing)
			}
		}
	}
	if largest != nil {
		requests = append(requests, *largest)
	}
	for _, i := range shared {
		mappings[i].RequestName = largest.Name
	}
	return requests, mappings
}

// requestOf returns a request of a container, the index'th of the pod, for count devices.
// Its name has the position of the resource among all that the container requests.
func requestOf(index int, c *v1.Container, name v1.ResourceName, class string, count int64) *resourceapi.DeviceRequest {
	position := slices.Index(slices.Sorted(maps.Keys(c.Resources.Requests)), name)
	return &resourceapi.DeviceRequest{Name: fmt.Sprintf("container-%d-request-%d", index, position), Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count,
	}}
}
