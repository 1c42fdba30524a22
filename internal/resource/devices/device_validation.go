package devices

import (
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/resource/core"
	"github.com/coracle-io/coracle/internal/resource/rule"
)

// validateDevices checks the devices of a slice; old is the slice before, nil
// for a new one.
func validateDevices(p *field.Path, s, old *resourcev1.ResourceSliceSpec) field.ErrorList {
	most := resourcev1.ResourceSliceMaxDevices
	if slices.ContainsFunc(s.Devices, advanced) {
		most = resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures
	}
	perDevice := ptr.Deref(s.PerDeviceNodeSelection, false)
	return distinct(p, s.Devices, most, func(d *resourcev1.Device) string { return d.Name },
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

// advanced says whether a device is of those of which a slice holds fewer.
func advanced(d resourcev1.Device) bool {
	return len(d.Taints) > 0 || len(d.ConsumesCounters) > 0 || hasLists(&d)
}

// validateDevice checks a device. Capacities and taints that it had before
// are let through.
func validateDevice(p *field.Path, d, old *resourcev1.Device) field.ErrorList {
	errs := rule.Label(p.Child("name"), d.Name)
	if n := len(d.Attributes) + len(d.Capacity); n > resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
		errs = append(errs, field.Invalid(p, n, fmt.Sprintf("the total number of attributes and capacities must not exceed %d",
			resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice)))
	}
	errs = append(errs, entries(p.Child("attributes"), d.Attributes, unlimited, maxQualifiedName, validateQualifiedName, validateAttribute)...)
	if old == nil || !equality.Semantic.DeepEqual(d.Capacity, old.Capacity) {
		shared := ptr.Deref(d.AllowMultipleAllocations, false)
		errs = append(errs, entries(p.Child("capacity"), d.Capacity, unlimited, maxQualifiedName, validateQualifiedName,
			func(p *field.Path, c resourcev1.DeviceCapacity) field.ErrorList {
				return validateCapacity(p, c, shared)
			})...)
	}
	if old == nil || !equality.Semantic.DeepEqual(d.Taints, old.Taints) {
		errs = append(errs, each(p.Child("taints"), d.Taints, resourcev1.DeviceTaintsMaxLength,
			func(p *field.Path, t *resourcev1.DeviceTaint) field.ErrorList { return validateTaint(p, t, nil) })...)
	}
	errs = append(errs, distinct(p.Child("consumesCounters"), d.ConsumesCounters, resourcev1.ResourceSliceMaxDeviceCounterConsumptionsPerDevice,
		func(c *resourcev1.DeviceCounterConsumption) string { return c.CounterSet },
		func(p *field.Path, c *resourcev1.DeviceCounterConsumption) field.ErrorList {
			errs := validateCounters(p, "counterSet", c.CounterSet, c.Counters, resourcev1.ResourceSliceMaxCountersPerDeviceCounterConsumption)
			return append(errs, distinct(p.Child("compatibilityGroups"), c.CompatibilityGroups, resourcev1.DeviceCompatibilityGroupsMaxSize, itself,
				func(p *field.Path, group *string) field.ErrorList { return rule.Label(p, *group) })...)
		})...)
	return append(errs, validateNodeResources(p.Child("nodeAllocatableResources"), d)...)
}

// validateDeviceNodes requires one way of saying which nodes reach the device
// where the slice leaves that to its devices, and none where it does not.
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
		errs = append(errs, rule.Subdomain(p.Child("nodeName"), *d.NodeName)...)
	}
	if d.NodeSelector != nil {
		set = append(set, "`nodeSelector`")
		errs = append(errs, core.ValidateNodeSelector(d.NodeSelector, p.Child("nodeSelector"))...)
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

// validateBindingConditions checks the conditions that must hold, or must not
// come true, before a pod is bound: neither list comes without the other.
func validateBindingConditions(p *field.Path, conditions, failures []string) field.ErrorList {
	good, bad := p.Child("bindingConditions"), p.Child("bindingFailureConditions")
	errs := each(good, conditions, resourcev1.BindingConditionsMaxSize, validateConditionName)
	errs = append(errs, each(bad, failures, resourcev1.BindingFailureConditionsMaxSize, validateConditionName)...)
	for i, condition := range conditions {
		if slices.Contains(conditions[:i], condition) {
			errs = append(errs, field.Duplicate(good.Index(i), condition))
		}
	}
	for i, failure := range failures {
		if slices.Contains(failures[:i], failure) {
			errs = append(errs, field.Duplicate(bad.Index(i), failure))
		}
		if slices.Contains(conditions, failure) {
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

// validateTaint checks a taint; of one that was there before the effect may
// be of those that are no more.
func validateTaint(p *field.Path, t, old *resourcev1.DeviceTaint) field.ErrorList {
	errs := rule.Problems(p.Child("key"), t.Key, utilvalidation.IsQualifiedName(t.Key))
	if t.Value != "" {
		errs = append(errs, rule.Problems(p.Child("value"), t.Value, utilvalidation.IsValidLabelValue(t.Value))...)
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
