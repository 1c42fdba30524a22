package networking

import (
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/defaultclass"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/defaults"
	"github.com/coracle-io/coracle/internal/resource/printers"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// IngressClasses is the resource ingressclasses.
func IngressClasses() *resource.Resource {
	return resource.Define(resource.Definition[networkingv1.IngressClass, *networkingv1.IngressClass]{
		GroupVersion: networkingv1.SchemeGroupVersion,
		Names:        resource.Names{Kind: "IngressClass", Plural: "ingressclasses"},
		Cluster:      true,
		Default: func(c *networkingv1.IngressClass) {
			if c.Spec.Parameters != nil {
				defaults.Nil(&c.Spec.Parameters.Scope, networkingv1.IngressClassParametersReferenceScopeCluster)
			}
		},
		Spec:                 func(c *networkingv1.IngressClass) any { return c.Spec },
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*networkingv1.IngressClass]{
			Validate: validateIngressClass,
			ValidateUpdate: func(r *resource.RequestContext, c, old *networkingv1.IngressClass) field.ErrorList {
				errs := validators.Immutable(field.NewPath("spec", "controller"), c.Spec.Controller, old.Spec.Controller)
				errs = append(errs, resource.ValidateNamedMetadata(c, false, validation.NameIsDNSSubdomain)...)
				return append(errs, validateIngressClass(r, c)...)
			},
		},
		Table: resource.Table[*networkingv1.IngressClass]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("Controller", "string", "Controller that is responsible for handling this class"),
				resource.Column("Parameters", "string", "A reference to a resource with additional parameters"),
				resource.AgeColumn(),
			},
			Row: ingressClassRow,
		},
	})
}

func ingressClassRow(c *networkingv1.IngressClass, now time.Time) []any {
	parameters := printers.None
	if p := c.Spec.Parameters; p != nil {
		parameters = p.Kind
		if p.APIGroup != nil {
			parameters += "." + *p.APIGroup
		}
		parameters += "/" + p.Name
	}
	name := c.Name
	if defaultclass.IsIngress(c) {
		name += " (default)"
	}
	return []any{name, c.Spec.Controller, parameters, resource.Age(c.CreationTimestamp, now)}
}

// maxControllerLength is the maximum length of a controller's name in bytes.
const maxControllerLength = 250

func validateIngressClass(_ *resource.RequestContext, c *networkingv1.IngressClass) field.ErrorList {
	p := field.NewPath("spec")
	var errs field.ErrorList
	if len(c.Spec.Controller) > maxControllerLength {
		errs = append(errs, field.TooLong(p.Child("controller"), c.Spec.Controller, maxControllerLength))
	}
	errs = append(errs, utilvalidation.IsDomainPrefixedPath(p.Child("controller"), c.Spec.Controller)...)
	if c.Spec.Parameters != nil {
		errs = append(errs, validateParameters(p.Child("parameters"), c.Spec.Parameters)...)
	}
	return errs
}

func validateParameters(p *field.Path, r *networkingv1.IngressClassParametersReference) field.ErrorList {
	errs := validateTypedReference(p, r.APIGroup, r.Kind, r.Name)
	const cluster = networkingv1.IngressClassParametersReferenceScopeCluster
	const namespace = networkingv1.IngressClassParametersReferenceScopeNamespace
	if r.Scope == nil {
		return append(errs, field.Required(p.Child("scope"), ""))
	}
	errs = append(errs, validators.OneOf(p.Child("scope"), *r.Scope, cluster, namespace)...)
	switch at := p.Child("namespace"); {
	case *r.Scope == namespace && r.Namespace == nil:
		errs = append(errs, field.Required(at, "`parameters.scope` is set to 'Namespace'"))
	case *r.Scope == namespace:
		errs = append(errs, validators.Label(at, *r.Namespace)...)
	case *r.Scope == cluster && r.Namespace != nil:
		errs = append(errs, field.Forbidden(at, "`parameters.scope` is set to 'Cluster'"))
	}
	return errs
}

// validateTypedReference checks a reference to an object of any kind.
func validateTypedReference(p *field.Path, group *string, kind, name string) field.ErrorList {
	var errs field.ErrorList
	if group != nil {
		errs = append(errs, validators.Subdomain(p.Child("apiGroup"), *group)...)
	}
	errs = append(errs, validators.RequiredPathSegment(p.Child("kind"), kind)...)
	return append(errs, validators.RequiredPathSegment(p.Child("name"), name)...)
}
