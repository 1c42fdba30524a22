package rbac

import (
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/fill"
)

// RoleBindings is the resource rolebindings.
func RoleBindings() *resource.Resource {
	return resource.Define(resource.Definition[rbacv1.RoleBinding, *rbacv1.RoleBinding]{
		GroupVersion:        rbacv1.SchemeGroupVersion,
		Kind:                "RoleBinding",
		Plural:              "rolebindings",
		AllowCreateOnUpdate: true,
		Default: func(b *rbacv1.RoleBinding) {
			fill.Zero(&b.RoleRef.APIGroup, rbacv1.GroupName)
			defaultSubjects(b.Subjects)
		},
		Columns: bindingColumns(),
		Row: func(b *rbacv1.RoleBinding, now time.Time) []any {
			users, groups, accounts := subjectCells(b.Subjects)
			return []any{
				b.Name, b.RoleRef.Kind + "/" + b.RoleRef.Name, resource.Age(b.CreationTimestamp, now),
				users, groups, accounts,
			}
		},
	})
}
