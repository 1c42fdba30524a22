package devices

import (
	"fmt"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/rule"
)

func validateSlice(_ *resource.Request, r *resourcev1.ResourceSlice) field.ErrorList {
	p, s := field.NewPath("spec"), &r.Spec
	errs := validateDriverName(p.Child("driver"), s.Driver)
	errs = append(errs, validatePool(p.Child("pool"), &s.Pool)...)
	errs = append(errs, validateSliceNodes(p, s)...)
	devices := p.Child("devices")
	if len(s.Devices) > resourcev1.ResourceSliceMaxDevices {
		errs = append(errs, field.TooMany(devices, len(s.Devices), resourcev1.ResourceSliceMaxDevices))
	}
	names := sets.New[string]()
	for i := range s.Devices {
		at, d := devices.Index(i), &s.Devices[i]
		errs = append(errs, rule.Label(at.Child("name"), d.Name)...)
		if names.Has(d.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), d.Name))
		}
		names.Insert(d.Name)
		if n := len(d.Attributes) + len(d.Capacity); n > resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
			errs = append(errs, field.Invalid(at, n, fmt.Sprintf("the total number of attributes and capacities must not exceed %d",
				resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice)))
		}
		for name := range d.Attributes {
			errs = append(errs, validateQualifiedName(at.Child("attributes").Key(string(name)), string(name))...)
		}
		for name := range d.Capacity {
			errs = append(errs, validateQualifiedName(at.Child("capacity").Key(string(name)), string(name))...)
		}
	}
	return errs
}

func validatePool(p *field.Path, pool *resourcev1.ResourcePool) field.ErrorList {
	errs := validatePoolName(p.Child("name"), pool.Name)
	if pool.ResourceSliceCount <= 0 {
		errs = append(errs, field.Invalid(p.Child("resourceSliceCount"), pool.ResourceSliceCount, "must be greater than zero"))
	}
	return append(errs, rule.Nonnegative(p.Child("generation"), pool.Generation)...)
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
	var set []string
	if s.NodeName != nil {
		set = append(set, "`nodeName`")
	}
	if s.NodeSelector != nil {
		set = append(set, "`nodeSelector`")
	}
	if s.AllNodes != nil && *s.AllNodes {
		set = append(set, "`allNodes`")
	}
	if s.PerDeviceNodeSelection != nil && *s.PerDeviceNodeSelection {
		set = append(set, "`perDeviceNodeSelection`")
	}
	const one = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
	switch {
	case len(set) == 0 && len(s.SharedCounters) == 0:
		return field.ErrorList{field.Required(p, one)}
	case len(set) > 1:
		return field.ErrorList{field.Invalid(p, "{"+strings.Join(set, ", ")+"}", one+", but multiple fields are set")}
	case s.NodeName != nil:
		return rule.Subdomain(p.Child("nodeName"), *s.NodeName)
	default:
		return nil
	}
}

func validateSliceUpdate(_ *resource.Request, r, old *resourcev1.ResourceSlice) field.ErrorList {
	p := field.NewPath("spec")
	errs := rule.Immutable(p.Child("driver"), r.Spec.Driver, old.Spec.Driver)
	errs = append(errs, rule.Immutable(p.Child("pool", "name"), r.Spec.Pool.Name, old.Spec.Pool.Name)...)
	return append(errs, rule.Immutable(p.Child("nodeName"), r.Spec.NodeName, old.Spec.NodeName)...)
}
