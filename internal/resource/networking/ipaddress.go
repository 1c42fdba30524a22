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
	"github.com/coracle-io/coracle/internal/resource/cell"
	"github.com/coracle-io/coracle/internal/resource/rule"
)

// IPAddresses is the resource ipaddresses.
func IPAddresses() *resource.Resource {
	return resource.Define(resource.Definition[networkingv1.IPAddress, *networkingv1.IPAddress]{
		GroupVersion: networkingv1.SchemeGroupVersion,
		Kind:         "IPAddress",
		Plural:       "ipaddresses",
		ShortNames:   []string{"ip"},
		Cluster:      true,
		ValidateName: validateAddressName,
		Validate:     validateIPAddress,
		ValidateUpdate: func(_ *resource.Request, a, old *networkingv1.IPAddress) field.ErrorList {
			return rule.Immutable(field.NewPath("spec", "parentRef"), shownParent(a.Spec.ParentRef), shownParent(old.Spec.ParentRef))
		},
		Columns: []metav1.TableColumnDefinition{
			resource.NameColumn(),
			resource.Column("ParentRef", "string", networkingv1.IPAddressSpec{}.SwaggerDoc()["parentRef"]),
		},
		Row: func(a *networkingv1.IPAddress, _ time.Time) []any {
			return []any{a.Name, parentCell(a.Spec.ParentRef)}
		},
	})
}

func parentCell(p *networkingv1.ParentReference) string {
	if p == nil {
		return cell.None
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

func validateIPAddress(_ *resource.Request, a *networkingv1.IPAddress) field.ErrorList {
	p, ref := field.NewPath("spec", "parentRef"), a.Spec.ParentRef
	if ref == nil {
		return field.ErrorList{field.Required(p, "")}
	}
	var errs field.ErrorList
	if ref.Group != "" {
		errs = append(errs, rule.Subdomain(p.Child("group"), ref.Group)...)
	}
	errs = append(errs, rule.RequiredPathSegment(p.Child("resource"), ref.Resource)...)
	errs = append(errs, rule.RequiredPathSegment(p.Child("name"), ref.Name)...)
	if ref.Namespace != "" {
		errs = append(errs, rule.PathSegment(p.Child("namespace"), ref.Namespace)...)
	}
	return errs
}

// shownParent is the form in which messages show a parent reference.
func shownParent(r *networkingv1.ParentReference) any {
	if r == nil {
		return nil
	}
	return struct{ Group, Resource, Namespace, Name string }{r.Group, r.Resource, r.Namespace, r.Name}
}
