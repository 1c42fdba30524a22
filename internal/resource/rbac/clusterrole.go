package rbac

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/defaults"
)

// ClusterRoles is the resource clusterroles.
func ClusterRoles() *resource.Resource {
	return resource.Define(resource.Definition[rbacv1.ClusterRole, *rbacv1.ClusterRole]{
		GroupVersion: rbacv1.SchemeGroupVersion,
		Names:        resource.Names{Kind: "ClusterRole", Plural: "clusterroles"},
		Cluster:      true,
		Default:      func(o *rbacv1.ClusterRole) { defaults.Absent(&o.Rules) },
		Strategy: resource.Strategy[*rbacv1.ClusterRole]{
			AllowCreateOnUpdate: true,
			ValidateName:        resource.NameIsPathSegment,
			Validate: func(_ *resource.RequestContext, o *rbacv1.ClusterRole) field.ErrorList {
				return slices.Concat(validateRules(o.Rules, false), validateAggregation(o.AggregationRule), validateVerbs(o.Rules))
			},
		},
	})
}
