package networking

import (
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/printers"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// IPAddresses is the resource ipaddresses.
func IPAddresses() *resource.Resource {
	return resource.Define(resource.Definition[networkingv1.IPAddress, *networkingv1.IPAddress]{
		GroupVersion: networkingv1.SchemeGroupVersion,
		Names:        resource.Names{Kind: "IPAddress", Plural: "ipaddresses", ShortNames: []string{"ip"}},
		Cluster:      true,
		Strategy: resource.Strategy[*networkingv1.IPAddress]{
			ValidateName: validateAddressName,
			Validate:     validateIPAddress,
			ValidateUpdate: func(_ *resource.RequestContext, a, old *networkingv1.IPAddress) field.ErrorList {
				return validators.Unchanged(field.NewPath("spec", "parentRef"), a.Spec.ParentRef, old.Spec.ParentRef)
			},
		},
		Table: resource.Table[*networkingv1.IPAddress]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("ParentRef", "string", networkingv1.IPAddressSpec{}.SwaggerDoc()["parentRef"]),
			},
			Row: func(a *networkingv1.IPAddress, _ time.Time) []any {
				return []any{a.Name, parentCell(a.Spec.ParentRef)}
			},
		},
	})
}

func parentCell(p *networkingv1.ParentReference) string {
	if p == nil {
		return printers.None
	}
	parts := []string{strings.ToLower(schema.GroupResource{Group: p.Group, Resource: p.Resource}.String())}
	if p.Namespace != "" {
		parts = append(parts, p.Namespace)
	}
	return strings.Join(append(parts, p.Name), "/")
}

// validateAddressName requires an IP address in its canonical form.
func validateAddressName(name string, _ bool) []string {
	var problems []string
	for _, err := range utilvalidation.IsValidIP(nil, name) {
		problems = append(problems, err.Detail)
	}
	return problems
}

func validateIPAddress(_ *resource.RequestContext, a *networkingv1.IPAddress) field.ErrorList {
	p, ref := field.NewPath("spec", "parentRef"), a.Spec.ParentRef
	if ref == nil {
		return field.ErrorList{field.Required(p, "")}
	}
	var errs field.ErrorList
	if ref.Group != "" {
		errs = append(errs, validators.Subdomain(p.Child("group"), ref.Group)...)
	}
	errs = append(errs, validators.RequiredPathSegment(p.Child("resource"), ref.Resource)...)
	errs = append(errs, validators.RequiredPathSegment(p.Child("name"), ref.Name)...)
	if ref.Namespace != "" {
		errs = append(errs, validators.PathSegment(p.Child("namespace"), ref.Namespace)...)
	}
	return errs
}
