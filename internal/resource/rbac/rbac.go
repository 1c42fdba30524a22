// Package rbac defines the resources of the group rbac.authorization.k8s.io.
package rbac

import "github.com/coracle-io/coracle/internal/resource"

// Resources lists the group's resources.
func Resources() []*resource.Resource {
	return []*resource.Resource{ClusterRoleBindings(), ClusterRoles(), RoleBindings(), Roles()}
}
