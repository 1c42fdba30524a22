// Package quota computes what objects use of the ResourceQuotas of their
// namespace. The admission plugin charges a write with it, the controller
// recounts stored objects.
//
//	Tracked  which resource's objects a name in spec.hard counts
//	Selects  whether a quota's scopes select an object
//	Usage    what one object takes
//	Lookup   the objects on which the usage of another depends
package quota

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/timespan"
)

// Usage returns what an object of the resource uses of a quota at a time: one
// object, and the amounts that it requests. A pod that has finished, or whose
// grace period is over, uses only count/pods. For an object of which only the
// metadata is known, Usage returns the object counts.
func Usage(gr schema.GroupResource, obj any, now time.Time, find Lookup) corev1.ResourceList {
	one := *resource.NewQuantity(1, resource.DecimalSI)
	used := corev1.ResourceList{countName(gr): one}
	pod, isPod := obj.(*corev1.Pod)
	if isPod && finished(pod, now) {
		return used
	}
	if name, ok := plainName(gr); ok {
		used[name] = one
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		podUsage(used, o, find.Features)
	case *corev1.Service:
		serviceUsage(used, o)
	case *corev1.PersistentVolumeClaim:
		claimUsage(used, o, one)
	case *resourcev1.ResourceClaim:
		deviceUsage(used, o, find)
	}
	return used
}

// finished reports whether a pod no longer uses resources: it has ended, or
// its grace period is over because its node does not respond.
func finished(pod *corev1.Pod, now time.Time) bool {
	if podquery.IsFinished(pod) {
		return true
	}
	if pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil {
		return false
	}
	return now.After(pod.DeletionTimestamp.Add(timespan.Seconds(*pod.DeletionGracePeriodSeconds)))
}

// podUsage adds the resources of a pod. One that is being resized uses the
// larger of what it requests and what it still has.
func podUsage(used corev1.ResourceList, pod *corev1.Pod, features *feature.Set) {
	options := resourcehelper.PodResourcesOptions{
		UseStatusResources:                             true,
		SkipPodLevelResources:                          !features.Enabled(feature.PodLevelResources),
		InPlacePodLevelResourcesVerticalScalingEnabled: features.Enabled(feature.InPlacePodLevelResourcesVerticalScaling),
	}
	for name, q := range resourcehelper.PodRequests(pod, options) {
		switch {
		case computed(name) || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
			used[name] = q
			used[corev1.DefaultResourceRequestsPrefix+name] = q
		case requestedOnly(name):
			used[corev1.DefaultResourceRequestsPrefix+name] = q
		}
	}
	for name, q := range resourcehelper.PodLimits(pod, options) {
		if computed(name) {
			used["limits."+name] = q
		}
	}
}

// computed reports whether quotas limit a resource both as requests and as
// limits.
func computed(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage
}

// requestedOnly reports whether quotas limit only the requests of a resource:
// extended resources, and the devices of one DeviceClass by the name that every
// class has (KEP-5004).
func requestedOnly(name corev1.ResourceName) bool {
	return Extended(name) || strings.HasPrefix(string(name), resourcev1.ResourceDeviceClassPrefix)
}

// Extended reports whether a resource is one that Kubernetes does not define,
// such as a device plugin's.
func Extended(name corev1.ResourceName) bool {
	s := string(name)
	return strings.Contains(s, "/") && !strings.Contains(s, corev1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(s, corev1.DefaultResourceRequestsPrefix)
}

func serviceUsage(used corev1.ResourceList, s *corev1.Service) {
	ports, balancers := 0, int64(0)
	switch s.Spec.Type {
	case corev1.ServiceTypeNodePort:
		ports = len(s.Spec.Ports)
	case corev1.ServiceTypeLoadBalancer:
		balancers = 1
		for _, p := range s.Spec.Ports {
			if s.Spec.AllocateLoadBalancerNodePorts == nil || *s.Spec.AllocateLoadBalancerNodePorts || p.NodePort != 0 {
				ports++
			}
		}
	}
	used[corev1.ResourceServicesNodePorts] = *resource.NewQuantity(int64(ports), resource.DecimalSI)
	used[corev1.ResourceServicesLoadBalancers] = *resource.NewQuantity(balancers, resource.DecimalSI)
}

// The names under which a claim also counts for its class.
const (
	ofStorageClass = ".storageclass.storage.k8s.io/"
	ofDeviceClass  = ".deviceclass.resource.k8s.io/devices"
)

func claimUsage(used corev1.ResourceList, c *corev1.PersistentVolumeClaim, one resource.Quantity) {
	class := ptr.Deref(c.Spec.StorageClassName, "")
	if beta, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		class = beta
	}
	if class != "" {
		used[corev1.ResourceName(class+ofStorageClass)+corev1.ResourcePersistentVolumeClaims] = one
	}
	size, ok := c.Spec.Resources.Requests[corev1.ResourceStorage]
	if !ok {
		return
	}
	if allocated, ok := c.Status.AllocatedResources[corev1.ResourceStorage]; ok && allocated.Cmp(size) > 0 {
		size = allocated
	}
	used[corev1.ResourceRequestsStorage] = size
	if class != "" {
		used[corev1.ResourceName(class+ofStorageClass)+corev1.ResourceRequestsStorage] = size
	}
}

// deviceUsage counts the devices of each class that a claim can get, also as the
// extended resources that they provide. If a request has alternatives, it counts
// the largest number for each class.
func deviceUsage(used corev1.ResourceList, c *resourcev1.ResourceClaim, find Lookup) {
	total := map[string]int64{}
	for _, r := range c.Spec.Devices.Requests {
		if r.Exactly != nil {
			total[r.Exactly.DeviceClassName] += devices(r.Exactly.AllocationMode, r.Exactly.Count)
			continue
		}
		most := map[string]int64{}
		for _, sub := range r.FirstAvailable {
			most[sub.DeviceClassName] = max(most[sub.DeviceClassName], devices(sub.AllocationMode, sub.Count))
		}
		for class, n := range most {
			total[class] += n
		}
	}
	extended := map[corev1.ResourceName]int64{}
	for class, n := range total {
		used[corev1.ResourceName(class+ofDeviceClass)] = *resource.NewQuantity(n, resource.DecimalSI)
		extended[corev1.ResourceName(corev1.ResourceImplicitExtendedClaimsPerClass+class)] += n
		if name := find.extendedResource(class); name != "" {
			extended[corev1.ResourceName(corev1.DefaultResourceRequestsPrefix+name)] += n
		}
	}
	own := find.countedByPod(c)
	for name, n := range extended {
		byPod := own[name]
		used[name] = *resource.NewQuantity(max(0, n-byPod.Value()), resource.DecimalSI)
	}
}

func devices(mode resourcev1.DeviceAllocationMode, count int64) int64 {
	if mode == resourcev1.DeviceAllocationModeAll {
		return resourcev1.AllocationResultsMaxSize
	}
	return max(count, 1)
}
