package rbac

import (
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/defaults"
)

// ClusterRoleBindings is the resource clusterrolebindings.
func ClusterRoleBindings() *resource.Resource {
	return resource.Define(resource.Definition[rbacv1.ClusterRoleBinding, *rbacv1.ClusterRoleBinding]{
		GroupVersion: rbacv1.SchemeGroupVersion,
		Names:        resource.Names{Kind: "ClusterRoleBinding", Plural: "clusterrolebindings"},
		Cluster:      true,
		Default: func(b *rbacv1.ClusterRoleBinding) {
			defaults.Zero(&b.RoleRef.APIGroup, rbacv1.GroupName)
			defaultSubjects(b.Subjects)
		},
		Strategy: resource.Strategy[*rbacv1.ClusterRoleBinding]{
			AllowCreateOnUpdate: true,
			ValidateName:        resource.NameIsPathSegment,
			Validate: func(_ *resource.RequestContext, b *rbacv1.ClusterRoleBinding) field.ErrorList {
				return validateBinding(b.RoleRef, b.Subjects, false)
			},
			ValidateUpdate: func(_ *resource.RequestContext, b, old *rbacv1.ClusterRoleBinding) field.ErrorList {
				return validateRoleRefUpdate(b.RoleRef, old.RoleRef)
			},
		},
		Table: resource.Table[*rbacv1.ClusterRoleBinding]{
			Columns: bindingColumns(),
			Row: func(b *rbacv1.ClusterRoleBinding, now time.Time) []any {
				users, groups, accounts := subjectCells(b.Subjects)
				return []any{
					b.Name, b.RoleRef.Kind + "/" + b.RoleRef.Name, resource.Age(b.CreationTimestamp, now),
					users, groups, accounts,
				}
			},
		},
	})
}
