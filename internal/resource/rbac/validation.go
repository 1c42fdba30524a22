package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource/validators"
)

func validateRules(rules []rbacv1.PolicyRule, namespaced bool) field.ErrorList {
	var errs field.ErrorList
	for i := range rules {
		errs = append(errs, validateRule(field.NewPath("rules").Index(i), &rules[i], namespaced)...)
	}
	return errs
}

// validateVerbs checks that rules have verbs, by the tags of the type. Its errors come
// last.
func validateVerbs(rules []rbacv1.PolicyRule) field.ErrorList {
	var errs field.ErrorList
	for i := range rules {
		if len(rules[i].Verbs) == 0 {
			errs = append(errs, field.Required(field.NewPath("rules").Index(i).Child("verbs"), ""))
		}
	}
	return errs
}

func validateRule(p *field.Path, r *rbacv1.PolicyRule, namespaced bool) field.ErrorList {
	var errs field.ErrorList
	if len(r.NonResourceURLs) > 0 {
		if namespaced {
			errs = append(errs, field.Invalid(p.Child("nonResourceURLs"), r.NonResourceURLs, "namespaced rules cannot apply to non-resource URLs"))
		}
		if len(r.APIGroups) > 0 || len(r.Resources) > 0 || len(r.ResourceNames) > 0 {
			errs = append(errs, field.Invalid(p.Child("nonResourceURLs"), r.NonResourceURLs, "rules cannot apply to both regular resources and non-resource URLs"))
		}
		return errs
	}
	if len(r.APIGroups) == 0 {
		errs = append(errs, field.Required(p.Child("apiGroups"), "resource rules must supply at least one api group"))
	}
	if len(r.Resources) == 0 {
		errs = append(errs, field.Required(p.Child("resources"), "resource rules must supply at least one resource"))
	}
	return errs
}

func validateAggregation(a *rbacv1.AggregationRule) field.ErrorList {
	if a == nil {
		return nil
	}
	p := field.NewPath("aggregationRule", "clusterRoleSelectors")
	if len(a.ClusterRoleSelectors) == 0 {
		return field.ErrorList{field.Required(p, "at least one clusterRoleSelector required if aggregationRule is non-nil")}
	}
	var errs field.ErrorList
	for i := range a.ClusterRoleSelectors {
		errs = append(errs, validators.Selector(p.Index(i), &a.ClusterRoleSelectors[i])...)
		if selector, err := metav1.LabelSelectorAsSelector(&a.ClusterRoleSelectors[i]); err != nil {
			errs = append(errs, field.Invalid(p.Index(i), selector, "invalid label selector."))
		}
	}
	return errs
}

func validateBinding(ref rbacv1.RoleRef, subjects []rbacv1.Subject, namespaced bool) field.ErrorList {
	p := field.NewPath("roleRef")
	kinds := []string{"ClusterRole"}
	if namespaced {
		kinds = []string{"Role", "ClusterRole"}
	}
	errs := validators.OneOf(p.Child("apiGroup"), ref.APIGroup, rbacv1.GroupName)
	errs = append(errs, validators.OneOf(p.Child("kind"), ref.Kind, kinds...)...)
	errs = append(errs, validators.RequiredPathSegment(p.Child("name"), ref.Name)...)
	for i := range subjects {
		errs = append(errs, validateSubject(field.NewPath("subjects").Index(i), &subjects[i], namespaced)...)
	}
	return errs
}

func validateSubject(p *field.Path, s *rbacv1.Subject, namespaced bool) field.ErrorList {
	var errs field.ErrorList
	if s.Name == "" {
		errs = append(errs, field.Required(p.Child("name"), ""))
	}
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		if s.Name != "" {
			errs = append(errs, validators.Subdomain(p.Child("name"), s.Name)...)
		}
		errs = append(errs, validators.OneOf(p.Child("apiGroup"), s.APIGroup, "")...)
		if !namespaced && s.Namespace == "" {
			errs = append(errs, field.Required(p.Child("namespace"), ""))
		}
	case rbacv1.UserKind, rbacv1.GroupKind:
		errs = append(errs, validators.OneOf(p.Child("apiGroup"), s.APIGroup, rbacv1.GroupName)...)
	default:
		errs = append(errs, validators.OneOf(p.Child("kind"), s.Kind, rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind)...)
	}
	return errs
}

func validateRoleRefUpdate(ref, old rbacv1.RoleRef) field.ErrorList {
	if ref == old {
		return nil
	}
	shown := struct{ APIGroup, Kind, Name string }{ref.APIGroup, ref.Kind, ref.Name}
	return field.ErrorList{field.Invalid(field.NewPath("roleRef"), shown, "field is immutable")}
}
