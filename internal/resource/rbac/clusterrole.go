package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/coracle-io/coracle/internal/resource"
)

// ClusterRoles is the resource clusterroles.
func ClusterRoles() *resource.Resource {
	return resource.Define(resource.Definition[rbacv1.ClusterRole, *rbacv1.ClusterRole]{
		GroupVersion:        rbacv1.SchemeGroupVersion,
		Kind:                "ClusterRole",
		Plural:              "clusterroles",
		Cluster:             true,
		AllowCreateOnUpdate: true,
	})
}
