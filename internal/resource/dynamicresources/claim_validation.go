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
	// compared has the attributes that constraints compare, by the request or
	// the alternative that a constraint is for, or "" if it is for all.
	compared map[string]sets.Set[resourcev1.FullyQualifiedName]
	cost     uint64 // of the derived attributes
}

func newClaimRules(d *resourcev1.DeviceClaim, features *feature.Set) *claimRules {
	c := &claimRules{compiler: newCompiler(features), compared: map[string]sets.Set[resourcev1.FullyQualifiedName]{}}
	for i := range d.Constraints {
		constraint := &d.Constraints[i]
		attribute, requests := constraint.MatchAttribute, constraint.Requests
		if attribute == nil {
			attribute = constraint.DistinctAttribute
		}
		if attribute == nil {
			continue
		}
		if len(requests) == 0 {
			requests = []string{""}
		}
		for _, request := range requests {
			if c.compared[request] == nil {
				c.compared[request] = sets.New[resourcev1.FullyQualifiedName]()
			}
			c.compared[request].Insert(*attribute)
		}
	}
	return c
}

// compares reports whether a constraint for a request compares an attribute.
// The constraints for a request are also for its alternatives.
func (c *claimRules) compares(request string, attribute resourcev1.FullyQualifiedName) bool {
	whole, _, _ := strings.Cut(request, "/")
	return c.compared[""].Has(attribute) || c.compared[whole].Has(attribute) || c.compared[request].Has(attribute)
}

func validateClaim(p *field.Path, s *resourcev1.ResourceClaimSpec, features *feature.Set) field.ErrorList {
	d, at := &s.Devices, p.Child("devices")
	names, rules := requestNames(d), newClaimRules(d, features)
	errs := validateUniqueItems(at.Child("requests"), d.Requests, resourcev1.DeviceRequestsMaxSize,
		func(r *resourcev1.DeviceRequest) string { return r.Name }, rules.request)
	errs = append(errs, validateItems(at.Child("constraints"), d.Constraints, resourcev1.DeviceConstraintsMaxSize,
		func(p *field.Path, c *resourcev1.DeviceConstraint) field.ErrorList {
			return validateConstraint(p, c, names, rules.features.EnableConsumableCapacity)
		})...)
	errs = append(errs, validateItems(at.Child("config"), d.Config, resourcev1.DeviceConfigMaxSize,
		func(p *field.Path, c *resourcev1.DeviceClaimConfiguration) field.ErrorList {
			errs := validateRequestNames(p.Child("requests"), c.Requests, names)
			return append(errs, validateConfiguration(p, &c.DeviceConfiguration, false)...)
		})...)
	if rules.cost > resourcev1.DeviceClaimDerivedAttributeCELMaxCost {
		errs = append(errs, field.Forbidden(at, "too complex, total cost of derived attribute CEL expressions in the claim exceeds cost limit"))
	}
	return errs
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
		errs = append(errs, c.derivedAttributes(p.Child("exactly", "derivedAttributes"), e.DerivedAttributes, r.Name)...)
	default:
		errs = append(errs, validateUniqueItems(p.Child("firstAvailable"), r.FirstAvailable, resourcev1.FirstAvailableDeviceRequestMaxSize,
			func(a *resourcev1.DeviceSubRequest) string { return a.Name },
			func(p *field.Path, a *resourcev1.DeviceSubRequest) field.ErrorList {
				return c.alternative(p, a, r.Name+"/"+a.Name)
			})...)
	}
	return errs
}

// alternative checks one alternative of a request. name is its full name.
func (c *claimRules) alternative(p *field.Path, a *resourcev1.DeviceSubRequest, name string) field.ErrorList {
	errs := validators.Label(p.Child("name"), a.Name)
	errs = append(errs, c.classAndCount(p, a.DeviceClassName, a.Selectors, a.AllocationMode, a.Count, a.Tolerations)...)
	return append(errs, c.derivedAttributes(p.Child("derivedAttributes"), a.DerivedAttributes, name)...)
}

// derivedAttributes checks attributes that expressions compute for a request,
// and adds up their cost. A constraint for the request must compare each.
func (c *claimRules) derivedAttributes(p *field.Path, attributes []resourcev1.DeviceDerivedAttribute, request string) field.ErrorList {
	return validateUniqueItems(p, attributes, resourcev1.DeviceDerivedAttributesMaxSize,
		func(d *resourcev1.DeviceDerivedAttribute) resourcev1.FullyQualifiedName { return d.Name },
		func(p *field.Path, d *resourcev1.DeviceDerivedAttribute) field.ErrorList {
			var errs field.ErrorList
			if name := p.Child("name"); d.Name == "" {
				errs = append(errs, field.Required(name, ""))
			} else {
				errs = append(errs, validateFullyQualifiedName(name, d.Name)...)
				if !c.compares(request, d.Name) {
					errs = append(errs, field.Invalid(name, d.Name,
						"must be referenced by at least one matchAttribute or distinctAttribute constraint targeting this request"))
				}
			}
			at := p.Child("expression")
			if d.Expression == "" {
				return append(errs, field.Required(at, ""))
			}
			cost, problems := c.expression(at, d.Expression, true)
			if len(problems) == 0 && cost > resourcev1.DeviceClaimDerivedAttributeCELMaxCost {
				problems = append(problems, field.Forbidden(at, "too complex, exceeds cost limit"))
			}
			c.cost += min(cost, resourcev1.DeviceClaimDerivedAttributeCELMaxCost+1)
			return append(errs, problems...)
		})
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
// both, only matchAttribute is checked. distinct reports whether there is a
// choice.
func validateConstraint(p *field.Path, c *resourcev1.DeviceConstraint, names sets.Set[string], distinct bool) field.ErrorList {
	errs := validateRequestNames(p.Child("requests"), c.Requests, names)
	switch {
	case c.MatchAttribute != nil:
		return append(errs, validateFullyQualifiedName(p.Child("matchAttribute"), *c.MatchAttribute)...)
	case c.DistinctAttribute != nil:
		return append(errs, validateFullyQualifiedName(p.Child("distinctAttribute"), *c.DistinctAttribute)...)
	case !distinct:
		return append(errs, field.Required(p.Child("matchAttribute"), ""))
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
	return validators.Unchanged(field.NewPath("spec"), c.Spec, old.Spec)
}

func immutableSpec(spec, old any) field.ErrorList {
	if equality.Semantic.DeepEqual(spec, old) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("spec"), validators.Shown(spec), "field is immutable")}
}
