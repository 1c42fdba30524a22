// Package rbac defines the resources of the group rbac.authorization.k8s.io.
package rbac

import "github.com/coracle-io/coracle/internal/resource"

// Resources lists the group's resources.
func Resources() []*resource.Resource {
	return resource.InGroup(resource.Priorities{Group: 17000}, ClusterRoleBindings(), ClusterRoles(), RoleBindings(), Roles())
}
