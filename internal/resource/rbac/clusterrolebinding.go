package rbac

import (
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/fill"
)

// ClusterRoleBindings is the resource clusterrolebindings.
func ClusterRoleBindings() *resource.Resource {
	return resource.Define(resource.Definition[rbacv1.ClusterRoleBinding, *rbacv1.ClusterRoleBinding]{
		GroupVersion:        rbacv1.SchemeGroupVersion,
		Kind:                "ClusterRoleBinding",
		Plural:              "clusterrolebindings",
		Cluster:             true,
		AllowCreateOnUpdate: true,
		Default: func(b *rbacv1.ClusterRoleBinding) {
			fill.Zero(&b.RoleRef.APIGroup, rbacv1.GroupName)
			defaultSubjects(b.Subjects)
		},
		Columns: bindingColumns(),
		Row: func(b *rbacv1.ClusterRoleBinding, now time.Time) []any {
			users, groups, accounts := subjectCells(b.Subjects)
			return []any{
				b.Name, b.RoleRef.Kind + "/" + b.RoleRef.Name, resource.Age(b.CreationTimestamp, now),
				users, groups, accounts,
			}
		},
	})
}
