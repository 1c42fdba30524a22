package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/fill"
)

// Roles is the resource roles.
func Roles() *resource.Resource {
	return resource.Define(resource.Definition[rbacv1.Role, *rbacv1.Role]{
		GroupVersion:        rbacv1.SchemeGroupVersion,
		Kind:                "Role",
		Plural:              "roles",
		AllowCreateOnUpdate: true,
		Default:             func(o *rbacv1.Role) { fill.Absent(&o.Rules) },
		ValidateName:        resource.NameIsPathSegment,
		Validate: func(_ *resource.Request, o *rbacv1.Role) field.ErrorList {
			return validateRules(o.Rules, true)
		},
	})
}
