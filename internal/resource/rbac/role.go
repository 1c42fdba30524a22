package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/coracle-io/coracle/internal/resource"
)

// Roles is the resource roles.
func Roles() *resource.Resource {
	return resource.Define(resource.Definition[rbacv1.Role, *rbacv1.Role]{
		GroupVersion:        rbacv1.SchemeGroupVersion,
		Kind:                "Role",
		Plural:              "roles",
		AllowCreateOnUpdate: true,
	})
}
