package dynamicresources

import (
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/resource/core/nodeselector"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// validateDevices checks the devices of a slice. old is the old slice, or nil.
func validateDevices(p *field.Path, s, old *resourcev1.ResourceSliceSpec) field.ErrorList {
	most := resourcev1.ResourceSliceMaxDevices
	if slices.ContainsFunc(s.Devices, usesAdvancedFeatures) {
		most = resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures
	}
	perDevice := ptr.Deref(s.PerDeviceNodeSelection, false)
	return validateUniqueItems(p, s.Devices, most, func(d *resourcev1.Device) string { return d.Name },
		func(p *field.Path, d *resourcev1.Device) field.ErrorList {
			var before *resourcev1.Device
			if old != nil {
				if i := slices.IndexFunc(old.Devices, func(o resourcev1.Device) bool { return o.Name == d.Name }); i >= 0 {
					before = &old.Devices[i]
				}
			}
			errs := validateDevice(p, d, before)
			errs = append(errs, validateDeviceNodes(p, d, perDevice)...)
			return append(errs, validateBindingConditions(p, d.BindingConditions, d.BindingFailureConditions)...)
		})
}

// usesAdvancedFeatures reports whether a device uses a feature that lowers the
// maximum number of devices per slice.
func usesAdvancedFeatures(d resourcev1.Device) bool {
	return len(d.Taints) > 0 || len(d.ConsumesCounters) > 0 || hasLists(&d)
}

// validateDevice checks a device. Its old capacities and taints are accepted.
func validateDevice(p *field.Path, d, old *resourcev1.Device) field.ErrorList {
	errs := validators.Label(p.Child("name"), d.Name)
	if n := len(d.Attributes) + len(d.Capacity); n > resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
		errs = append(errs, field.Invalid(p, n, fmt.Sprintf("the total number of attributes and capacities must not exceed %d",
			resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice)))
	}
	if n := attributeValues(d); n > resourcev1.ResourceSliceMaxAttributeValuesPerDevice {
		errs = append(errs, field.Invalid(p, n, fmt.Sprintf("the total number of attribute values must not exceed %d",
			resourcev1.ResourceSliceMaxAttributeValuesPerDevice)))
	}
	errs = append(errs, validateEntries(p.Child("attributes"), d.Attributes, unlimited, maxQualifiedName, validateQualifiedName, validateAttribute)...)
	if old == nil || !equality.Semantic.DeepEqual(d.Capacity, old.Capacity) {
		shared := ptr.Deref(d.AllowMultipleAllocations, false)
		errs = append(errs, validateEntries(p.Child("capacity"), d.Capacity, unlimited, maxQualifiedName, validateQualifiedName,
			func(p *field.Path, c resourcev1.DeviceCapacity) field.ErrorList {
				return validateCapacity(p, c, shared)
			})...)
	}
	if old == nil || !equality.Semantic.DeepEqual(d.Taints, old.Taints) {
		errs = append(errs, validateItems(p.Child("taints"), d.Taints, resourcev1.DeviceTaintsMaxLength,
			func(p *field.Path, t *resourcev1.DeviceTaint) field.ErrorList { return validateTaint(p, t, nil) })...)
	}
	errs = append(errs, validateUniqueItems(p.Child("consumesCounters"), d.ConsumesCounters, resourcev1.ResourceSliceMaxDeviceCounterConsumptionsPerDevice,
		func(c *resourcev1.DeviceCounterConsumption) string { return c.CounterSet },
		func(p *field.Path, c *resourcev1.DeviceCounterConsumption) field.ErrorList {
			errs := validateCounters(p, "counterSet", c.CounterSet, c.Counters, resourcev1.ResourceSliceMaxCountersPerDeviceCounterConsumption)
			return append(errs, validateUniqueItems(p.Child("compatibilityGroups"), c.CompatibilityGroups, resourcev1.DeviceCompatibilityGroupsMaxSize, identity,
				func(p *field.Path, group *string) field.ErrorList { return validators.Label(p, *group) })...)
		})...)
	return append(errs, validateNodeResources(p.Child("nodeAllocatableResources"), d)...)
}

// validateDeviceNodes requires exactly one way to select a device's nodes if
// the slice has perDeviceNodeSelection, and none otherwise.
func validateDeviceNodes(p *field.Path, d *resourcev1.Device, perDevice bool) field.ErrorList {
	if !perDevice {
		if d.NodeName == nil && d.NodeSelector == nil && d.AllNodes == nil {
			return nil
		}
		return field.ErrorList{field.Invalid(p, nil, "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec")}
	}
	const one = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
	var set []string
	var errs field.ErrorList
	if d.NodeName != nil && *d.NodeName == "" {
		errs = append(errs, field.Invalid(p.Child("nodeName"), "", "must not be empty"))
	} else if d.NodeName != nil {
		set = append(set, "`nodeName`")
		errs = append(errs, validators.Subdomain(p.Child("nodeName"), *d.NodeName)...)
	}
	if d.NodeSelector != nil {
		set = append(set, "`nodeSelector`")
		errs = append(errs, nodeselector.Validate(d.NodeSelector, p.Child("nodeSelector"))...)
	}
	if d.AllNodes != nil && !*d.AllNodes {
		errs = append(errs, field.Invalid(p.Child("allNodes"), false, unsetOrTrue))
	} else if d.AllNodes != nil {
		set = append(set, "`allNodes`")
	}
	switch len(set) {
	case 0:
		return append(errs, field.Required(p, one))
	case 1:
		return errs
	default:
		return append(errs, field.Invalid(p, "{"+strings.Join(set, ", ")+"}", one))
	}
}

// validateBindingConditions checks the conditions for binding a pod: those
// that must be true, and those that make it fail. Neither list can be empty if
// the other is not.
func validateBindingConditions(p *field.Path, conditions, failures []string) field.ErrorList {
	good, bad := p.Child("bindingConditions"), p.Child("bindingFailureConditions")
	errs := validateItems(good, conditions, resourcev1.BindingConditionsMaxSize, validateConditionName)
	errs = append(errs, validateItems(bad, failures, resourcev1.BindingFailureConditionsMaxSize, validateConditionName)...)
	succeed, fail := sets.New[string](), sets.New[string]()
	for i, condition := range conditions {
		if succeed.Has(condition) {
			errs = append(errs, field.Duplicate(good.Index(i), condition))
		}
		succeed.Insert(condition)
	}
	for i, failure := range failures {
		if fail.Has(failure) {
			errs = append(errs, field.Duplicate(bad.Index(i), failure))
		}
		fail.Insert(failure)
		if succeed.Has(failure) {
			errs = append(errs, field.Invalid(bad.Index(i), failure, "bindingFailureConditions must not overlap with bindingConditions"))
		}
	}
	if len(conditions) == 0 && len(failures) > 0 {
		errs = append(errs, field.Invalid(good, conditions, "bindingConditions are required to use bindingFailureConditions"))
	}
	if len(failures) == 0 && len(conditions) > 0 {
		errs = append(errs, field.Invalid(bad, failures, "bindingFailureConditions are required to use bindingConditions"))
	}
	return errs
}

// validateTaint checks a taint. An old one can have an effect that is no
// longer allowed.
func validateTaint(p *field.Path, t, old *resourcev1.DeviceTaint) field.ErrorList {
	errs := validators.Problems(p.Child("key"), t.Key, utilvalidation.IsQualifiedName(t.Key))
	if t.Value != "" {
		errs = append(errs, validators.Problems(p.Child("value"), t.Value, utilvalidation.IsValidLabelValue(t.Value))...)
	}
	switch {
	case old != nil && old.Effect == t.Effect:
		return errs
	case t.Effect == "":
		return append(errs, field.Required(p.Child("effect"), ""))
	default:
		return append(errs, validateEffect(p.Child("effect"), t.Effect)...)
	}
}
