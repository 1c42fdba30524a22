package dynamicresources

import (
	"regexp"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource/validators"
)

// semanticVersion matches versions as semver.org defines them.
var semanticVersion = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)` +
	`(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?` +
	`(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?$`)

// validateAttribute requires one value of one type, or a list of them
// (KEP-5491).
func validateAttribute(p *field.Path, a resourcev1.DeviceAttribute) field.ErrorList {
	var errs field.ErrorList
	set := 0
	for _, there := range []bool{
		a.IntValue != nil, a.BoolValue != nil, a.StringValue != nil, a.VersionValue != nil,
		a.IntValues != nil, a.BoolValues != nil, a.StringValues != nil, a.VersionValues != nil,
	} {
		if there {
			set++
		}
	}
	if a.StringValue != nil {
		errs = append(errs, validateAttributeLength(p.Child("string"), *a.StringValue)...)
	}
	if a.VersionValue != nil {
		errs = append(errs, validateVersion(p.Child("version"), *a.VersionValue)...)
	}
	for _, list := range []struct {
		name  string
		empty bool
	}{
		{"ints", a.IntValues != nil && len(a.IntValues) == 0}, {"bools", a.BoolValues != nil && len(a.BoolValues) == 0},
		{"strings", a.StringValues != nil && len(a.StringValues) == 0}, {"versions", a.VersionValues != nil && len(a.VersionValues) == 0},
	} {
		if list.empty {
			errs = append(errs, field.Invalid(p.Child(list.name), []string{}, "must not be empty if specified"))
		}
	}
	for i, value := range a.StringValues {
		errs = append(errs, validateAttributeLength(p.Child("strings").Index(i), value)...)
	}
	for i, value := range a.VersionValues {
		errs = append(errs, validateVersion(p.Child("versions").Index(i), value)...)
	}
	switch set {
	case 0:
		return append(errs, field.Invalid(p, "", "exactly one value must be specified"))
	case 1:
		return errs
	default:
		return append(errs, field.Invalid(p, validators.Shown(a), "exactly one value must be specified"))
	}
}

func validateVersion(p *field.Path, value string) field.ErrorList {
	var errs field.ErrorList
	if !semanticVersion.MatchString(value) {
		errs = append(errs, field.Invalid(p, value, "must be a string compatible with semver.org spec 2.0.0"))
	}
	return append(errs, validateAttributeLength(p, value)...)
}

func validateAttributeLength(p *field.Path, value string) field.ErrorList {
	if len(value) <= resourcev1.DeviceAttributeMaxValueLength {
		return nil
	}
	return field.ErrorList{field.TooLong(p, value, resourcev1.DeviceAttributeMaxValueLength)}
}

// attributeValues counts the values of a device's attributes, each item of a
// list as one.
func attributeValues(d *resourcev1.Device) int {
	n := 0
	for _, a := range d.Attributes {
		n += max(1, len(a.IntValues)+len(a.BoolValues)+len(a.StringValues)+len(a.VersionValues))
	}
	return n
}
