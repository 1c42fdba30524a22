package dynamicresources

import (
	"fmt"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/nodeselector"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// validateSlice checks a slice. old is the old slice, or nil.
func validateSlice(s, old *resourcev1.ResourceSliceSpec) field.ErrorList {
	p := field.NewPath("spec")
	errs := validateDriverName(p.Child("driver"), s.Driver)
	errs = append(errs, validatePool(p.Child("pool"), &s.Pool)...)
	if old != nil {
		errs = append(errs, validators.Immutable(p.Child("pool", "name"), s.Pool.Name, old.Pool.Name)...)
		errs = append(errs, validators.Immutable(p.Child("driver"), s.Driver, old.Driver)...)
		errs = append(errs, validators.Immutable(p.Child("nodeName"), s.NodeName, old.NodeName)...)
	}
	errs = append(errs, validateSliceNodes(p, s)...)
	if s.SharedCounters != nil && s.Devices != nil {
		errs = append(errs, field.Invalid(p, "", "only one of `sharedCounters` or `devices` is allowed"))
	}
	errs = append(errs, validateDevices(p.Child("devices"), s, old)...)
	errs = append(errs, validatePartitionTypes(p, s)...)
	errs = append(errs, validateSkipped(p.Child("skipNodeOperations"), s.SkipNodeOperations)...)
	return append(errs, validateUniqueItems(p.Child("sharedCounters"), s.SharedCounters, resourcev1.ResourceSliceMaxCounterSets,
		func(c *resourcev1.CounterSet) string { return c.Name },
		func(p *field.Path, c *resourcev1.CounterSet) field.ErrorList {
			return validateCounters(p, "name", c.Name, c.Counters, resourcev1.ResourceSliceMaxCountersPerCounterSet)
		})...)
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

// validateSliceNodes requires exactly one way to select the nodes of the
// devices.
func validateSliceNodes(p *field.Path, s *resourcev1.ResourceSliceSpec) field.ErrorList {
	const one = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
	var set []string
	var errs field.ErrorList
	if name := s.NodeName; name != nil && *name == "" {
		errs = append(errs, field.Invalid(p.Child("nodeName"), *name, "must be either unset or set to a non-empty string"))
	} else if name != nil {
		set = append(set, "`nodeName`")
		errs = append(errs, validators.Subdomain(p.Child("nodeName"), *name)...)
	}
	if s.NodeSelector != nil {
		set = append(set, "`nodeSelector`")
		at := p.Child("nodeSelector")
		errs = append(errs, nodeselector.Validate(s.NodeSelector, at)...)
		if terms := s.NodeSelector.NodeSelectorTerms; len(terms) != 1 {
			errs = append(errs, field.Invalid(at.Child("nodeSelectorTerms"), validators.Shown(terms), "must have exactly one node selector term"))
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

// validateCounters checks the counters of a set and its name.
func validateCounters(p *field.Path, key, name string, counters map[string]resourcev1.Counter, most int) field.ErrorList {
	var errs field.ErrorList
	if name == "" {
		errs = append(errs, field.Required(p.Child(key), ""))
	} else {
		errs = append(errs, validators.Label(p.Child(key), name)...)
	}
	if len(counters) == 0 {
		return append(errs, field.Required(p.Child("counters"), ""))
	}
	return append(errs, validateEntries(p.Child("counters"), counters, most, utilvalidation.DNS1123LabelMaxLength, validators.Label,
		func(*field.Path, resourcev1.Counter) field.ErrorList { return nil })...)
}

// sliceWarnings warns of a driver's name with capitals.
func sliceWarnings(_ *resource.RequestContext, s, _ *resourcev1.ResourceSlice) []string {
	if s.Spec.Driver == strings.ToLower(s.Spec.Driver) {
		return nil
	}
	return []string{fmt.Sprintf("spec.driver: driver names should be lowercase; %q contains uppercase characters", s.Spec.Driver)}
}
