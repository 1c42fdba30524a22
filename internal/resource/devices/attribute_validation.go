package devices

import (
	"regexp"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource/rule"
)

// semanticVersion is what semver.org calls a version.
var semanticVersion = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)` +
	`(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?` +
	`(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?$`)

// validateAttribute requires one value of one type.
func validateAttribute(p *field.Path, a resourcev1.DeviceAttribute) field.ErrorList {
	var errs field.ErrorList
	set := 0
	for _, there := range []bool{a.IntValue != nil, a.BoolValue != nil, a.StringValue != nil, a.VersionValue != nil} {
		if there {
			set++
		}
	}
	if a.StringValue != nil {
		errs = append(errs, validateAttributeLength(p.Child("string"), *a.StringValue)...)
	}
	if a.VersionValue != nil {
		at := p.Child("version")
		if !semanticVersion.MatchString(*a.VersionValue) {
			errs = append(errs, field.Invalid(at, *a.VersionValue, "must be a string compatible with semver.org spec 2.0.0"))
		}
		errs = append(errs, validateAttributeLength(at, *a.VersionValue)...)
	}
	switch set {
	case 0:
		return append(errs, field.Invalid(p, "", "exactly one value must be specified"))
	case 1:
		return errs
	default:
		return append(errs, field.Invalid(p, rule.Shown(a), "exactly one value must be specified"))
	}
}

func validateAttributeLength(p *field.Path, value string) field.ErrorList {
	if len(value) <= resourcev1.DeviceAttributeMaxValueLength {
		return nil
	}
	return field.ErrorList{field.TooLong(p, value, resourcev1.DeviceAttributeMaxValueLength)}
}
