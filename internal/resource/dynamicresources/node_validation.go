package dynamicresources

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource/validators"
)

// validateSkipped checks which calls to the driver on the node are skipped.
// Unprepare can be called without prepare, but not the reverse.
func validateSkipped(p *field.Path, operations []resourcev1.SkipNodeOperation) field.ErrorList {
	const prepare, unprepare, every = resourcev1.SkipNodeOperationNodePrepareResources,
		resourcev1.SkipNodeOperationNodeUnprepareResources, resourcev1.SkipNodeOperationAll
	errs := validateUniqueItems(p, operations, unlimited, func(o *resourcev1.SkipNodeOperation) resourcev1.SkipNodeOperation { return *o },
		func(p *field.Path, o *resourcev1.SkipNodeOperation) field.ErrorList {
			return validators.OneOf(p, *o, every, prepare, unprepare)
		})
	if slices.Contains(operations, prepare) && !slices.Contains(operations, unprepare) && !slices.Contains(operations, every) {
		errs = append(errs, field.Invalid(p, operations, "NodePrepareResources cannot be skipped unless NodeUnprepareResources is also skipped"))
	}
	return errs
}

// validatePartitionTypes requires that devices with shared counters have the
// attribute for their type, and that devices of one type consume the same
// counters.
func validatePartitionTypes(p *field.Path, s *resourcev1.ResourceSliceSpec) field.ErrorList {
	if s.PartitionTypeAttribute == nil {
		return nil
	}
	name := *s.PartitionTypeAttribute
	errs := validateFullyQualifiedName(p.Child("partitionTypeAttribute"), name)
	if len(errs) > 0 {
		return errs
	}
	first := map[string]*resourcev1.Device{}
	for i := range s.Devices {
		d, at := &s.Devices[i], p.Child("devices").Index(i)
		if len(d.ConsumesCounters) == 0 {
			continue
		}
		attribute, ok := driverAttribute(d, s.Driver, string(name))
		kind := attribute.StringValue
		switch where := at.Child("attributes").Key(string(name)); {
		case !ok:
			errs = append(errs, field.Required(where, "device consumes counters and `partitionTypeAttribute` names this attribute, so it must be set"))
			continue
		case kind == nil:
			errs = append(errs, field.Invalid(where, validators.Shown(attribute), "must be a string value because `partitionTypeAttribute` names this attribute"))
			continue
		}
		if other := first[*kind]; other == nil {
			first[*kind] = d
		} else if !sameCounters(d.ConsumesCounters, other.ConsumesCounters) {
			errs = append(errs, field.Invalid(at.Child("consumesCounters"), validators.Shown(d.ConsumesCounters),
				"must be the same as those of the other devices of the type "+*kind))
		}
	}
	return errs
}

// driverAttribute returns an attribute by its full name. In the domain of the
// driver, a device can have it under its short name.
func driverAttribute(d *resourcev1.Device, driver, name string) (attribute resourcev1.DeviceAttribute, ok bool) {
	if attribute, ok = d.Attributes[resourcev1.QualifiedName(name)]; ok {
		return attribute, true
	}
	if short, own := strings.CutPrefix(name, driver+"/"); own {
		attribute, ok = d.Attributes[resourcev1.QualifiedName(short)]
	}
	return attribute, ok
}

// sameCounters reports whether a and b are equal except for their order.
func sameCounters(a, b []resourcev1.DeviceCounterConsumption) bool {
	counters := make(map[string]map[string]resourcev1.Counter, len(b))
	for i := range b {
		counters[b[i].CounterSet] = b[i].Counters
	}
	return len(a) == len(b) && !slices.ContainsFunc(a, func(c resourcev1.DeviceCounterConsumption) bool {
		other, ok := counters[c.CounterSet]
		return !ok || len(c.Counters) != len(other) || differs(c.Counters, other)
	})
}

func differs(a, b map[string]resourcev1.Counter) bool {
	for name, counter := range a {
		if other, ok := b[name]; !ok || counter.Value.Cmp(other.Value) != 0 {
			return true
		}
	}
	return false
}

// validateNodeResources checks the node allocatable resources that a device
// uses: in proportion to the device or to a capacity, or as an overhead.
func validateNodeResources(p *field.Path, d *resourcev1.Device) field.ErrorList {
	return validateEntries(p, d.NodeAllocatableResources, unlimited, maxQualifiedName, validateNodeResource,
		func(p *field.Path, r resourcev1.NodeAllocatableResource) field.ErrorList {
			if r.Mapping == nil && r.Overhead == nil {
				return field.ErrorList{field.Required(p, "at least one of mapping or overhead must be set")}
			}
			errs := validateMapping(p.Child("mapping"), r.Mapping, d)
			return append(errs, validateOverhead(p.Child("overhead"), r.Overhead)...)
		})
}

// validateNodeResource requires a resource of nodes that is not an extended
// resource.
func validateNodeResource(p *field.Path, name string) field.ErrorList {
	switch corev1.ResourceName(name) {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return nil
	}
	if strings.HasPrefix(name, corev1.ResourceHugePagesPrefix) {
		return validators.Problems(p.Key(name), name, utilvalidation.IsQualifiedName(name))
	}
	return field.ErrorList{field.Invalid(p.Key(name), name, "must be a node allocatable resource name")}
}

func validateMapping(p *field.Path, m *resourcev1.NodeAllocatableMapping, d *resourcev1.Device) field.ErrorList {
	if m == nil {
		return nil
	}
	var errs field.ErrorList
	key, multiplier := p.Child("capacityKey"), p.Child("capacityMultiplier")
	switch {
	case m.CapacityKey != nil && m.DeviceMultiplier != nil:
		errs = append(errs, field.Invalid(p, "{`capacityKey`, `deviceMultiplier`}", "exactly one of `capacityKey`, `deviceMultiplier` is required, but multiple fields are set"))
	case m.CapacityKey == nil && m.DeviceMultiplier == nil:
		errs = append(errs, field.Required(p, "exactly one of `capacityKey`, `deviceMultiplier` is required"))
	}
	if m.CapacityKey != nil {
		errs = append(errs, validateQualifiedName(key, string(*m.CapacityKey))...)
		if _, ok := d.Capacity[*m.CapacityKey]; !ok {
			errs = append(errs, field.NotFound(key, *m.CapacityKey))
		}
		if m.CapacityMultiplier == nil {
			errs = append(errs, field.Required(multiplier, "capacityMultiplier is required when capacityKey is set"))
		}
	} else if m.CapacityMultiplier != nil {
		errs = append(errs, field.Required(key, "capacityKey is required when capacityMultiplier is set"))
	}
	errs = append(errs, validateMultiplier(multiplier, m.CapacityMultiplier)...)
	return append(errs, validateMultiplier(p.Child("deviceMultiplier"), m.DeviceMultiplier)...)
}

func validateMultiplier(p *field.Path, q *resource.Quantity) field.ErrorList {
	if q == nil || q.Sign() > 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(p, q.String(), "must be positive")}
}

func validateOverhead(p *field.Path, o *resourcev1.NodeAllocatableOverhead) field.ErrorList {
	if o == nil {
		return nil
	}
	if o.PerPod == nil && o.PerContainer == nil {
		return field.ErrorList{field.Invalid(p, "", "at least one of perPod or perContainer must be set")}
	}
	var errs field.ErrorList
	for _, part := range []struct {
		name   string
		amount *resource.Quantity
	}{{"perPod", o.PerPod}, {"perContainer", o.PerContainer}} {
		if part.amount != nil && part.amount.Sign() < 0 {
			errs = append(errs, field.Invalid(p.Child(part.name), part.amount.String(), "must be non-negative"))
		}
	}
	return errs
}
