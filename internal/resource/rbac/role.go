package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/defaults"
)

// Roles is the resource roles.
func Roles() *resource.Resource {
	return resource.Define(resource.Definition[rbacv1.Role, *rbacv1.Role]{
		GroupVersion: rbacv1.SchemeGroupVersion,
		Names:        resource.Names{Kind: "Role", Plural: "roles"},
		Default:      func(o *rbacv1.Role) { defaults.Absent(&o.Rules) },
		Strategy: resource.Strategy[*rbacv1.Role]{
			AllowCreateOnUpdate: true,
			ValidateName:        resource.NameIsPathSegment,
			Validate: func(_ *resource.RequestContext, o *rbacv1.Role) field.ErrorList {
				return append(validateRules(o.Rules, true), validateVerbs(o.Rules)...)
			},
		},
	})
}
