package devices

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/resource/core"
	"github.com/coracle-io/coracle/internal/resource/rule"
)

func validateDevices(p *field.Path, s *resourcev1.ResourceSliceSpec) field.ErrorList {
	most := resourcev1.ResourceSliceMaxDevices
	if slices.ContainsFunc(s.Devices, func(d resourcev1.Device) bool { return len(d.Taints) > 0 || len(d.ConsumesCounters) > 0 }) {
		most = resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures
	}
	if len(s.Devices) > most {
		return field.ErrorList{field.TooMany(p, len(s.Devices), most)}
	}
	perDevice := ptr.Deref(s.PerDeviceNodeSelection, false)
	names := sets.New[string]()
	var errs field.ErrorList
	for i := range s.Devices {
		at, d := p.Index(i), &s.Devices[i]
		errs = append(errs, validateDevice(at, d)...)
		errs = append(errs, validateDeviceNodes(at, d, perDevice)...)
		if names.Has(d.Name) {
			errs = append(errs, field.Duplicate(at, d.Name))
		}
		names.Insert(d.Name)
	}
	return errs
}

func validateDevice(p *field.Path, d *resourcev1.Device) field.ErrorList {
	errs := rule.Label(p.Child("name"), d.Name)
	if n := len(d.Attributes) + len(d.Capacity); n > resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
		errs = append(errs, field.Invalid(p, n, fmt.Sprintf("the total number of attributes and capacities must not exceed %d",
			resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice)))
	}
	for _, name := range slices.Sorted(maps.Keys(d.Attributes)) {
		at := p.Child("attributes").Key(string(name))
		errs = append(errs, validateQualifiedName(at, string(name))...)
		errs = append(errs, validateAttribute(at, d.Attributes[name])...)
	}
	shared := ptr.Deref(d.AllowMultipleAllocations, false)
	for _, name := range slices.Sorted(maps.Keys(d.Capacity)) {
		at := p.Child("capacity").Key(string(name))
		errs = append(errs, validateQualifiedName(at, string(name))...)
		errs = append(errs, validateCapacity(at, d.Capacity[name], shared)...)
	}
	if n := len(d.Taints); n > resourcev1.DeviceTaintsMaxLength {
		errs = append(errs, field.TooMany(p.Child("taints"), n, resourcev1.DeviceTaintsMaxLength))
	} else {
		for i := range d.Taints {
			errs = append(errs, validateTaint(p.Child("taints").Index(i), &d.Taints[i])...)
		}
	}
	errs = append(errs, validateConsumedCounters(p.Child("consumesCounters"), d.ConsumesCounters)...)
	return append(errs, validateBindingConditions(p, d.BindingConditions, d.BindingFailureConditions)...)
}

// semanticVersion is what semver.org calls a version.
var semanticVersion = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)` +
	`(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?` +
	`(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?$`)

func validateAttribute(p *field.Path, a resourcev1.DeviceAttribute) field.ErrorList {
	var errs field.ErrorList
	var set []string
	if a.IntValue != nil {
		set = append(set, "int")
	}
	if a.BoolValue != nil {
		set = append(set, "bool")
	}
	if a.StringValue != nil {
		set = append(set, "string")
		errs = append(errs, validateAttributeLength(p.Child("string"), *a.StringValue)...)
	}
	if a.VersionValue != nil {
		set = append(set, "version")
		at := p.Child("version")
		if !semanticVersion.MatchString(*a.VersionValue) {
			errs = append(errs, field.Invalid(at, *a.VersionValue, "must be a string compatible with semver.org spec 2.0.0"))
		}
		errs = append(errs, validateAttributeLength(at, *a.VersionValue)...)
	}
	switch len(set) {
	case 0:
		errs = append(errs, field.Invalid(p, "", "exactly one value must be specified"))
	case 1:
	default:
		errs = append(errs, field.Invalid(p, rule.Shown(a), "exactly one value must be specified"))
	}
	return errs
}

func validateAttributeLength(p *field.Path, value string) field.ErrorList {
	if len(value) <= resourcev1.DeviceAttributeMaxValueLength {
		return nil
	}
	return field.ErrorList{field.TooLong(p, value, resourcev1.DeviceAttributeMaxValueLength)}
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
	errs := validateConditionTypes(good, conditions, resourcev1.BindingConditionsMaxSize)
	errs = append(errs, validateConditionTypes(bad, failures, resourcev1.BindingFailureConditionsMaxSize)...)
	for i, failure := range failures {
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

func validateConditionTypes(p *field.Path, types []string, most int) field.ErrorList {
	if len(types) > most {
		return field.ErrorList{field.TooMany(p, len(types), most)}
	}
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, name := range types {
		errs = append(errs, rule.Problems(p.Index(i), name, utilvalidation.IsQualifiedName(name))...)
		if seen.Has(name) {
			errs = append(errs, field.Duplicate(p.Index(i), name))
		}
		seen.Insert(name)
	}
	return errs
}
