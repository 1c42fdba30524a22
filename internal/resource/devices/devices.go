// Package devices defines the resources of the group resource.k8s.io: classes
// of devices, the slices of them that nodes offer, and claims to them.
package devices

import "github.com/coracle-io/coracle/internal/resource"

// Resources lists the group's resources.
func Resources() []*resource.Resource {
	return []*resource.Resource{DeviceClasses(), DeviceTaintRules(), ResourceClaims(), ResourceClaimTemplates(), ResourceSlices()}
}
