// Package devices defines the resources of the group resource.k8s.io: classes
// of devices, the slices of them that nodes offer, and claims to them.
package devices

import "github.com/coracle-io/coracle/internal/resource"

// Resources lists the group's resources.
func Resources() []*resource.Resource {
	return resource.InGroup(resource.Priorities{Group: 16200, Versions: map[string]int32{"v1": 21, "v1beta2": 15}}, DeviceClasses(), DeviceTaintRules(), ResourceClaims(), ResourceClaimTemplates(), ResourceSlices())
}
