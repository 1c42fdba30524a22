// Package networking defines the resources of the group networking.k8s.io.
package networking

import "github.com/coracle-io/coracle/internal/resource"

// Resources lists the group's resources.
func Resources() []*resource.Resource {
	return resource.InGroup(resource.Priorities{Group: 17200}, IngressClasses(), Ingresses(), IPAddresses(), NetworkPolicies(), ServiceCIDRs())
}
