package dynamicresources

import (
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// requestNames returns the names of a claim's requests, and the names of their
// alternatives in the form REQUEST/ALTERNATIVE.
func requestNames(d *resourcev1.DeviceClaim) sets.Set[string] {
	names := sets.New[string]()
	for i := range d.Requests {
		request := &d.Requests[i]
		names.Insert(request.Name)
		for k := range request.FirstAvailable {
			names.Insert(request.Name + "/" + request.FirstAvailable[k].Name)
		}
	}
	return names
}

// claimRules checks the requests of one claim.
type claimRules struct {
	compiler
	compared sets.Set[resourcev1.FullyQualifiedName] // attributes that constraints name
	budget   uint64                                  // the cost that derived attributes may still have
}

func newClaimRules(d *resourcev1.DeviceClaim, features *feature.Set) *claimRules {
	c := &claimRules{
		compiler: newCompiler(features), budget: resourcev1.DeviceClaimDerivedAttributeCELMaxCost,
		compared: sets.New[resourcev1.FullyQualifiedName](),
	}
	for i := range d.Constraints {
		for _, attribute := range []*resourcev1.FullyQualifiedName{d.Constraints[i].MatchAttribute, d.Constraints[i].DistinctAttribute} {
			if attribute != nil {
				c.compared.Insert(*attribute)
			}
		}
	}
	return c
}

func validateClaim(p *field.Path, s *resourcev1.ResourceClaimSpec, features *feature.Set) field.ErrorList {
	d, at := &s.Devices, p.Child("devices")
	names := requestNames(d)
	errs := validateUniqueItems(at.Child("requests"), d.Requests, resourcev1.DeviceRequestsMaxSize,
		func(r *resourcev1.DeviceRequest) string { return r.Name }, newClaimRules(d, features).request)
	errs = append(errs, validateItems(at.Child("constraints"), d.Constraints, resourcev1.DeviceConstraintsMaxSize,
		func(p *field.Path, c *resourcev1.DeviceConstraint) field.ErrorList {
			return validateConstraint(p, c, names)
		})...)
	return append(errs, validateItems(at.Child("config"), d.Config, resourcev1.DeviceConfigMaxSize,
		func(p *field.Path, c *resourcev1.DeviceClaimConfiguration) field.ErrorList {
			errs := validateRequestNames(p.Child("requests"), c.Requests, names)
			return append(errs, validateConfiguration(p, &c.DeviceConfiguration, false)...)
		})...)
}

func (c *claimRules) request(p *field.Path, r *resourcev1.DeviceRequest) field.ErrorList {
	errs := validators.Label(p.Child("name"), r.Name)
	switch e := r.Exactly; {
	case e == nil && len(r.FirstAvailable) == 0:
		errs = append(errs, field.Required(p, "exactly one of `exactly` or `firstAvailable` is required"))
	case e != nil && len(r.FirstAvailable) > 0:
		errs = append(errs, field.Invalid(p, nil, "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"))
	case e != nil:
		errs = append(errs, c.classAndCount(p.Child("exactly"), e.DeviceClassName, e.Selectors, e.AllocationMode, e.Count, e.Tolerations)...)
		errs = append(errs, c.derivedAttributes(p.Child("exactly", "derivedAttributes"), e.DerivedAttributes, c.compared, &c.budget)...)
	default:
		errs = append(errs, validateUniqueItems(p.Child("firstAvailable"), r.FirstAvailable, resourcev1.FirstAvailableDeviceRequestMaxSize,
			func(a *resourcev1.DeviceSubRequest) string { return a.Name }, c.alternative)...)
	}
	return errs
}

func (c *claimRules) alternative(p *field.Path, a *resourcev1.DeviceSubRequest) field.ErrorList {
	errs := validators.Label(p.Child("name"), a.Name)
	errs = append(errs, c.classAndCount(p, a.DeviceClassName, a.Selectors, a.AllocationMode, a.Count, a.Tolerations)...)
	return append(errs, c.derivedAttributes(p.Child("derivedAttributes"), a.DerivedAttributes, c.compared, &c.budget)...)
}

// classAndCount checks the class, the mode and the number of requested devices.
func (c *claimRules) classAndCount(
	p *field.Path, class string, selectors []resourcev1.DeviceSelector,
	mode resourcev1.DeviceAllocationMode, count int64, tolerations []resourcev1.DeviceToleration,
) field.ErrorList {
	var errs field.ErrorList
	if class == "" {
		errs = append(errs, field.Required(p.Child("deviceClassName"), ""))
	} else {
		errs = append(errs, validators.Subdomain(p.Child("deviceClassName"), class)...)
	}
	errs = append(errs, c.selectors(p.Child("selectors"), selectors, false)...)
	switch mode {
	case resourcev1.DeviceAllocationModeAll:
		if count != 0 {
			errs = append(errs, field.Invalid(p.Child("count"), count, "must not be specified when allocationMode is 'All'"))
		}
	case resourcev1.DeviceAllocationModeExactCount:
		if count <= 0 {
			errs = append(errs, field.Invalid(p.Child("count"), count, "must be greater than zero"))
		}
	default:
		errs = append(errs, validators.OneOf(p.Child("allocationMode"), mode, resourcev1.DeviceAllocationModeAll, resourcev1.DeviceAllocationModeExactCount)...)
	}
	return append(errs, validateTolerations(p.Child("tolerations"), tolerations)...)
}

// validateConstraint checks the attribute that a constraint compares. If it has
// both, only matchAttribute is checked.
func validateConstraint(p *field.Path, c *resourcev1.DeviceConstraint, names sets.Set[string]) field.ErrorList {
	errs := validateRequestNames(p.Child("requests"), c.Requests, names)
	switch {
	case c.MatchAttribute != nil:
		return append(errs, validateFullyQualifiedName(p.Child("matchAttribute"), *c.MatchAttribute)...)
	case c.DistinctAttribute != nil:
		return append(errs, validateFullyQualifiedName(p.Child("distinctAttribute"), *c.DistinctAttribute)...)
	default:
		return append(errs, field.Required(p, `exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set`))
	}
}

// validateRequestNames checks references to requests of the claim or to their
// alternatives.
func validateRequestNames(p *field.Path, requests []string, names sets.Set[string]) field.ErrorList {
	return validateUniqueItems(p, requests, resourcev1.DeviceRequestsMaxSize, identity,
		func(p *field.Path, request *string) field.ErrorList { return validateRequestName(p, *request, names) })
}

func validateRequestName(p *field.Path, request string, names sets.Set[string]) field.ErrorList {
	unknown := field.Invalid(p, request, "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'")
	segments := strings.Split(request, "/")
	if len(segments) > 2 {
		return field.ErrorList{unknown}
	}
	var errs field.ErrorList
	for _, segment := range segments {
		errs = append(errs, validators.Label(p, segment)...)
	}
	if !names.Has(request) {
		errs = append(errs, unknown)
	}
	return errs
}

// validateClaimUpdate keeps the spec. It does not report other errors of a
// changed one.
func validateClaimUpdate(_ *resource.RequestContext, c, old *resourcev1.ResourceClaim) field.ErrorList {
	return immutableSpec(c.Spec, old.Spec)
}

func immutableSpec(spec, old any) field.ErrorList {
	if equality.Semantic.DeepEqual(spec, old) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("spec"), validators.Shown(spec), "field is immutable")}
}
