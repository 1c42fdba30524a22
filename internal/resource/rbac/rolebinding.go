package rbac

import (
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/defaults"
)

// RoleBindings is the resource rolebindings.
func RoleBindings() *resource.Resource {
	return resource.Define(resource.Definition[rbacv1.RoleBinding, *rbacv1.RoleBinding]{
		GroupVersion: rbacv1.SchemeGroupVersion,
		Names:        resource.Names{Kind: "RoleBinding", Plural: "rolebindings"},
		Default: func(b *rbacv1.RoleBinding) {
			defaults.Zero(&b.RoleRef.APIGroup, rbacv1.GroupName)
			defaultSubjects(b.Subjects)
		},
		Strategy: resource.Strategy[*rbacv1.RoleBinding]{
			AllowCreateOnUpdate: true,
			ValidateName:        resource.NameIsPathSegment,
			Validate: func(_ *resource.RequestContext, b *rbacv1.RoleBinding) field.ErrorList {
				return validateBinding(b.RoleRef, b.Subjects, true)
			},
			ValidateUpdate: func(_ *resource.RequestContext, b, old *rbacv1.RoleBinding) field.ErrorList {
				return validateRoleRefUpdate(b.RoleRef, old.RoleRef)
			},
		},
		Table: resource.Table[*rbacv1.RoleBinding]{
			Columns: bindingColumns(),
			Row: func(b *rbacv1.RoleBinding, now time.Time) []any {
				users, groups, accounts := subjectCells(b.Subjects)
				return []any{
					b.Name, b.RoleRef.Kind + "/" + b.RoleRef.Name, resource.Age(b.CreationTimestamp, now),
					users, groups, accounts,
				}
			},
		},
	})
}
