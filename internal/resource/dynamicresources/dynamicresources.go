// Package dynamicresources defines the resources of the group resource.k8s.io:
// device classes, resource slices, resource claims and their templates.
package dynamicresources

import "github.com/coracle-io/coracle/internal/resource"

// Resources lists the group's resources.
func Resources() []*resource.Resource {
	return resource.InGroup(resource.Priorities{Group: 16200, Versions: map[string]int32{"v1": 21, "v1beta2": 15}}, DeviceClasses(), DeviceTaintRules(), ResourceClaims(), ResourceClaimTemplates(), ResourceSlices())
}
