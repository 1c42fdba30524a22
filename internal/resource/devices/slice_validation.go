package devices

import (
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core"
	"github.com/coracle-io/coracle/internal/resource/rule"
)

func validateSlice(_ *resource.Request, r *resourcev1.ResourceSlice) field.ErrorList {
	p, s := field.NewPath("spec"), &r.Spec
	errs := validateDriverName(p.Child("driver"), s.Driver)
	errs = append(errs, validatePool(p.Child("pool"), &s.Pool)...)
	errs = append(errs, validateSliceNodes(p, s)...)
	if s.SharedCounters != nil && s.Devices != nil {
		errs = append(errs, field.Invalid(p, "", "only one of `sharedCounters` or `devices` is allowed"))
	}
	errs = append(errs, validateDevices(p.Child("devices"), s)...)
	return append(errs, validateCounterSets(p.Child("sharedCounters"), s.SharedCounters)...)
}

func validatePool(p *field.Path, pool *resourcev1.ResourcePool) field.ErrorList {
	errs := validatePoolName(p.Child("name"), pool.Name)
	if pool.ResourceSliceCount <= 0 {
		errs = append(errs, field.Invalid(p.Child("resourceSliceCount"), pool.ResourceSliceCount, "must be greater than zero"))
	}
	if pool.Generation < 0 {
		errs = append(errs, field.Invalid(p.Child("generation"), pool.Generation, "must be greater than or equal to zero"))
	}
	return errs
}

// validatePoolName requires subdomains separated by slashes.
func validatePoolName(p *field.Path, name string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(p, "")}
	}
	var errs field.ErrorList
	if len(name) > resourcev1.PoolNameMaxLength {
		errs = append(errs, field.TooLong(p, name, resourcev1.PoolNameMaxLength))
	}
	for _, part := range strings.Split(name, "/") {
		errs = append(errs, rule.Subdomain(p, part)...)
	}
	return errs
}

// validateSliceNodes requires one way of saying which nodes reach the devices.
func validateSliceNodes(p *field.Path, s *resourcev1.ResourceSliceSpec) field.ErrorList {
	const one = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
	var set []string
	var errs field.ErrorList
	if name := s.NodeName; name != nil && *name == "" {
		errs = append(errs, field.Invalid(p.Child("nodeName"), *name, "must be either unset or set to a non-empty string"))
	} else if name != nil {
		set = append(set, "`nodeName`")
		errs = append(errs, rule.Subdomain(p.Child("nodeName"), *name)...)
	}
	if s.NodeSelector != nil {
		set = append(set, "`nodeSelector`")
		at := p.Child("nodeSelector")
		errs = append(errs, core.ValidateNodeSelector(s.NodeSelector, at)...)
		if terms := s.NodeSelector.NodeSelectorTerms; len(terms) != 1 {
			errs = append(errs, field.Invalid(at.Child("nodeSelectorTerms"), rule.Shown(terms), "must have exactly one node selector term"))
		}
	}
	for _, flag := range []struct {
		name  string
		value *bool
	}{{"allNodes", s.AllNodes}, {"perDeviceNodeSelection", s.PerDeviceNodeSelection}} {
		if flag.value == nil {
			continue
		}
		if !*flag.value {
			errs = append(errs, field.Invalid(p.Child(flag.name), false, unsetOrTrue))
			continue
		}
		set = append(set, "`"+flag.name+"`")
	}
	switch len(set) {
	case 0:
		return append(errs, field.Required(p, one))
	case 1:
		return errs
	default:
		return append(errs, field.Invalid(p, "{"+strings.Join(set, ", ")+"}", one+", but multiple fields are set"))
	}
}

const unsetOrTrue = "must be either unset or set to true"

func validateSliceUpdate(_ *resource.Request, r, old *resourcev1.ResourceSlice) field.ErrorList {
	p := field.NewPath("spec")
	errs := rule.Immutable(p.Child("driver"), r.Spec.Driver, old.Spec.Driver)
	errs = append(errs, rule.Immutable(p.Child("pool", "name"), r.Spec.Pool.Name, old.Spec.Pool.Name)...)
	return append(errs, rule.Immutable(p.Child("nodeName"), r.Spec.NodeName, old.Spec.NodeName)...)
}
