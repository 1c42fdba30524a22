package devices

import (
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/rule"
)

func dropDisabled(s *resourcev1.ResourceClaimSpec) {
	for i := range s.Devices.Requests {
		request := &s.Devices.Requests[i]
		if request.Exactly != nil {
			request.Exactly.DerivedAttributes = nil
		}
		for k := range request.FirstAvailable {
			request.FirstAvailable[k].DerivedAttributes = nil
		}
	}
}

func validateClaim(p *field.Path, s *resourcev1.ResourceClaimSpec) field.ErrorList {
	d, at := &s.Devices, p.Child("devices")
	var errs field.ErrorList
	if len(d.Requests) > resourcev1.DeviceRequestsMaxSize {
		errs = append(errs, field.TooMany(at.Child("requests"), len(d.Requests), resourcev1.DeviceRequestsMaxSize))
	}
	if len(d.Constraints) > resourcev1.DeviceConstraintsMaxSize {
		errs = append(errs, field.TooMany(at.Child("constraints"), len(d.Constraints), resourcev1.DeviceConstraintsMaxSize))
	}
	if len(d.Config) > resourcev1.DeviceConfigMaxSize {
		errs = append(errs, field.TooMany(at.Child("config"), len(d.Config), resourcev1.DeviceConfigMaxSize))
	}
	names := sets.New[string]()
	for i := range d.Requests {
		request, here := &d.Requests[i], at.Child("requests").Index(i)
		if names.Has(request.Name) {
			errs = append(errs, field.Duplicate(here, request.Name))
			continue
		}
		names.Insert(request.Name)
		for k := range request.FirstAvailable {
			names.Insert(request.Name + "/" + request.FirstAvailable[k].Name)
		}
		errs = append(errs, validateRequest(here, request)...)
	}
	for i := range d.Constraints {
		errs = append(errs, validateConstraint(at.Child("constraints").Index(i), &d.Constraints[i], names)...)
	}
	for i := range d.Config {
		here := at.Child("config").Index(i)
		errs = append(errs, validateRequestNames(here.Child("requests"), d.Config[i].Requests, names)...)
		errs = append(errs, validateConfiguration(here, &d.Config[i].DeviceConfiguration)...)
	}
	return errs
}

func validateRequest(p *field.Path, r *resourcev1.DeviceRequest) field.ErrorList {
	errs := rule.Label(p.Child("name"), r.Name)
	switch e := r.Exactly; {
	case e == nil && len(r.FirstAvailable) == 0:
		errs = append(errs, field.Required(p, "exactly one of `exactly` or `firstAvailable` is required"))
	case e != nil && len(r.FirstAvailable) > 0:
		errs = append(errs, field.Invalid(p, nil, "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"))
	case e != nil:
		errs = append(errs, validateWanted(p.Child("exactly"), e.DeviceClassName, e.Selectors, e.AllocationMode, e.Count, e.Tolerations)...)
	default:
		errs = append(errs, validateAlternatives(p.Child("firstAvailable"), r.FirstAvailable)...)
	}
	return errs
}

func validateAlternatives(p *field.Path, alternatives []resourcev1.DeviceSubRequest) field.ErrorList {
	var errs field.ErrorList
	if len(alternatives) > resourcev1.FirstAvailableDeviceRequestMaxSize {
		errs = append(errs, field.TooMany(p, len(alternatives), resourcev1.FirstAvailableDeviceRequestMaxSize))
	}
	names := sets.New[string]()
	for i := range alternatives {
		at, a := p.Index(i), &alternatives[i]
		if names.Has(a.Name) {
			errs = append(errs, field.Duplicate(at, a.Name))
		}
		names.Insert(a.Name)
		errs = append(errs, rule.Label(at.Child("name"), a.Name)...)
		errs = append(errs, validateWanted(at, a.DeviceClassName, a.Selectors, a.AllocationMode, a.Count, a.Tolerations)...)
	}
	return errs
}

// validateWanted checks which devices of a class are wanted, and how many.
func validateWanted(
	p *field.Path, class string, selectors []resourcev1.DeviceSelector,
	mode resourcev1.DeviceAllocationMode, count int64, tolerations []resourcev1.DeviceToleration,
) field.ErrorList {
	var errs field.ErrorList
	if class == "" {
		errs = append(errs, field.Required(p.Child("deviceClassName"), ""))
	} else {
		errs = append(errs, rule.Subdomain(p.Child("deviceClassName"), class)...)
	}
	errs = append(errs, validateSelectors(p.Child("selectors"), selectors, nil)...)
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
		errs = append(errs, rule.OneOf(p.Child("allocationMode"), mode, resourcev1.DeviceAllocationModeAll, resourcev1.DeviceAllocationModeExactCount)...)
	}
	return append(errs, validateTolerations(p.Child("tolerations"), tolerations)...)
}

func validateConstraint(p *field.Path, c *resourcev1.DeviceConstraint, names sets.Set[string]) field.ErrorList {
	errs := validateRequestNames(p.Child("requests"), c.Requests, names)
	const one = `exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set`
	switch {
	case c.MatchAttribute == nil && c.DistinctAttribute == nil:
		errs = append(errs, field.Required(p, one))
	case c.MatchAttribute != nil && c.DistinctAttribute != nil:
		errs = append(errs, field.Invalid(p, nil, one))
	case c.MatchAttribute != nil:
		errs = append(errs, validateFullyQualifiedName(p.Child("matchAttribute"), *c.MatchAttribute)...)
	default:
		errs = append(errs, validateFullyQualifiedName(p.Child("distinctAttribute"), *c.DistinctAttribute)...)
	}
	return errs
}

// validateRequestNames checks references to requests of the claim, or to
// their alternatives.
func validateRequestNames(p *field.Path, requests []string, names sets.Set[string]) field.ErrorList {
	var errs field.ErrorList
	if len(requests) > resourcev1.DeviceRequestsMaxSize {
		errs = append(errs, field.TooMany(p, len(requests), resourcev1.DeviceRequestsMaxSize))
	}
	seen := sets.New[string]()
	for i, request := range requests {
		at := p.Index(i)
		if seen.Has(request) {
			errs = append(errs, field.Duplicate(at, request))
			continue
		}
		seen.Insert(request)
		for _, segment := range strings.SplitN(request, "/", 2) {
			errs = append(errs, rule.Label(at, segment)...)
		}
		if !names.Has(request) {
			errs = append(errs, field.Invalid(at, request, "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"))
		}
	}
	return errs
}

func validateClaimUpdate(_ *resource.Request, c, old *resourcev1.ResourceClaim) field.ErrorList {
	return immutableSpec(c.Spec, old.Spec)
}

func immutableSpec(spec, old any) field.ErrorList {
	if equality.Semantic.DeepEqual(spec, old) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("spec"), rule.Shown(spec), "field is immutable")}
}

func validateClaimStatus(_ *resource.Request, c, old *resourcev1.ResourceClaim) field.ErrorList {
	p := field.NewPath("status")
	var errs field.ErrorList
	if old.Status.Allocation != nil && c.Status.Allocation != nil && !equality.Semantic.DeepEqual(c.Status.Allocation, old.Status.Allocation) {
		errs = append(errs, field.Invalid(p.Child("allocation"), rule.Shown(c.Status.Allocation), "field is immutable"))
	}
	reserved := p.Child("reservedFor")
	if len(c.Status.ReservedFor) > resourcev1.ResourceClaimReservedForMaxSize {
		errs = append(errs, field.TooMany(reserved, len(c.Status.ReservedFor), resourcev1.ResourceClaimReservedForMaxSize))
	}
	if len(c.Status.ReservedFor) > 0 && c.Status.Allocation == nil {
		errs = append(errs, field.Forbidden(reserved, "may not be specified when `allocated` is not set"))
	}
	for i, consumer := range c.Status.ReservedFor {
		at := reserved.Index(i)
		if consumer.Resource == "" {
			errs = append(errs, field.Required(at.Child("resource"), ""))
		}
		if consumer.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		}
		if consumer.UID == "" {
			errs = append(errs, field.Required(at.Child("uid"), ""))
		}
	}
	return errs
}
