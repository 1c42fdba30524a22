package networking

import (
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// ServiceCIDRs is the resource servicecidrs.
func ServiceCIDRs() *resource.Resource {
	return resource.Define(resource.Definition[networkingv1.ServiceCIDR, *networkingv1.ServiceCIDR]{
		GroupVersion: networkingv1.SchemeGroupVersion,
		Names:        resource.Names{Kind: "ServiceCIDR", Plural: "servicecidrs"},
		Cluster:      true,
		Status: resource.Status[*networkingv1.ServiceCIDR]{
			Copy:          func(c, from *networkingv1.ServiceCIDR) { c.Status = from.Status },
			KeepsMetadata: true,
		},
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*networkingv1.ServiceCIDR]{
			Validate: func(_ *resource.RequestContext, c *networkingv1.ServiceCIDR) field.ErrorList {
				return validateCIDRs(field.NewPath("spec", "cidrs"), &c.Spec)
			},
			ValidateUpdate: validateServiceCIDRUpdate,
		},
		Table: resource.Table[*networkingv1.ServiceCIDR]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("CIDRs", "string", networkingv1.ServiceCIDRSpec{}.SwaggerDoc()["cidrs"]),
				resource.AgeColumn(),
			},
			Row: func(c *networkingv1.ServiceCIDR, now time.Time) []any {
				return []any{c.Name, strings.Join(c.Spec.CIDRs, ","), resource.Age(c.CreationTimestamp, now)}
			},
		},
	})
}

// maxCIDRs allows one of each IP family.
const maxCIDRs = 2

func validateCIDRs(p *field.Path, s *networkingv1.ServiceCIDRSpec) field.ErrorList {
	cidrs := s.CIDRs
	switch {
	case len(cidrs) == 0:
		return field.ErrorList{field.Required(p, "at least one CIDR required")}
	case len(cidrs) > maxCIDRs:
		return field.ErrorList{field.Invalid(p, validators.Shown(*s), "may only hold up to 2 values")}
	}
	var errs field.ErrorList
	for i, cidr := range cidrs {
		errs = append(errs, utilvalidation.IsValidCIDR(p.Index(i), cidr)...)
	}
	if len(cidrs) == maxCIDRs {
		family := netutils.IPFamilyOfCIDRString(cidrs[0])
		if family != netutils.IPFamilyUnknown && family == netutils.IPFamilyOfCIDRString(cidrs[1]) {
			errs = append(errs, field.Invalid(p, cidrs, "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"))
		}
	}
	return errs
}

// validateServiceCIDRUpdate allows only a CIDR of the other family to be
// added.
func validateServiceCIDRUpdate(_ *resource.RequestContext, c, old *networkingv1.ServiceCIDR) field.ErrorList {
	p := field.NewPath("spec", "cidrs")
	if len(old.Spec.CIDRs) == 1 && len(c.Spec.CIDRs) == maxCIDRs {
		errs := validators.Immutable(p.Index(0), c.Spec.CIDRs[0], old.Spec.CIDRs[0])
		return append(errs, validateCIDRs(p, &c.Spec)...)
	}
	if len(c.Spec.CIDRs) != len(old.Spec.CIDRs) {
		return validators.Immutable(p, c.Spec.CIDRs, old.Spec.CIDRs)
	}
	var errs field.ErrorList
	for i := range c.Spec.CIDRs {
		errs = append(errs, validators.Immutable(p.Index(i), c.Spec.CIDRs[i], old.Spec.CIDRs[i])...)
	}
	return errs
}
