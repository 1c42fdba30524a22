// Package validators has the checks that kinds of several groups share.
package validators

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Problems reports each problem that a check found with value.
func Problems(p *field.Path, value any, problems []string) field.ErrorList {
	var errs field.ErrorList
	for _, problem := range problems {
		errs = append(errs, field.Invalid(p, value, problem))
	}
	return errs
}

// Subdomain requires a lower-case RFC 1123 subdomain.
func Subdomain(p *field.Path, value string) field.ErrorList {
	return Problems(p, value, utilvalidation.IsDNS1123Subdomain(value))
}

// Label requires a lower-case RFC 1123 label.
func Label(p *field.Path, value string) field.ErrorList {
	return Problems(p, value, utilvalidation.IsDNS1123Label(value))
}

// Selector requires a well-formed label selector.
func Selector(p *field.Path, s *metav1.LabelSelector) field.ErrorList {
	return metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, p)
}

// SelectorOptions are those for a selector that replaces old, which is nil for none:
// older versions did not check values, and those that are stored may stay.
func SelectorOptions(old *metav1.LabelSelector) metav1validation.LabelSelectorValidationOptions {
	return metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: len(Selector(nil, old)) > 0}
}

// PathSegment requires a name that can be a segment of a URL's path.
func PathSegment(p *field.Path, value string) field.ErrorList {
	return Problems(p, value, content.IsPathSegmentName(value))
}

// RequiredPathSegment requires a name that can be a segment of a URL path.
func RequiredPathSegment(p *field.Path, value string) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(p, "")}
	}
	return PathSegment(p, value)
}

// OneOf requires value to be one of allowed.
func OneOf[T ~string](p *field.Path, value T, allowed ...T) field.ErrorList {
	if slices.Contains(allowed, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(p, value, allowed)}
}

// Nonnegative requires a number of 0 or more.
func Nonnegative[T int32 | int64](p *field.Path, value T) field.ErrorList {
	return validation.ValidateNonnegativeField(int64(value), p)
}

// NonnegativePointer requires a number of 0 or more, if it is set.
func NonnegativePointer[T int32 | int64](p *field.Path, value *T) field.ErrorList {
	if value == nil {
		return nil
	}
	return Nonnegative(p, *value)
}

// Immutable requires value to be unchanged.
func Immutable(p *field.Path, value, old any) field.ErrorList {
	return validation.ValidateImmutableField(value, old, p)
}

// Unchanged requires value to be unchanged. Unlike [Immutable], its error is that
// of a tag of the type, which does not show the value.
func Unchanged(p *field.Path, value, old any) field.ErrorList {
	if equality.Semantic.DeepEqual(value, old) {
		return nil
	}
	return field.ErrorList{field.Invalid(p, nil, validation.FieldImmutableErrorMsg)}
}

// Port requires a port number.
func Port(p *field.Path, value int32) field.ErrorList {
	return Problems(p, value, utilvalidation.IsValidPortNum(int(value)))
}

// IntOrPercent requires a number of 0 or more, or a percentage.
func IntOrPercent(p *field.Path, value intstr.IntOrString) field.ErrorList {
	if value.Type == intstr.String {
		return Problems(p, value, utilvalidation.IsValidPercent(value.StrVal))
	}
	return Nonnegative(p, value.IntVal)
}

// AtMostWhole refuses percentages above 100 %.
func AtMostWhole(p *field.Path, value intstr.IntOrString) field.ErrorList {
	if percent, ok := Percent(value); ok && percent > 100 {
		return field.ErrorList{field.Invalid(p, value, "must not be greater than 100%")}
	}
	return nil
}

// Percent returns the number of a percentage. ok is false for anything else.
func Percent(value intstr.IntOrString) (percent int, ok bool) {
	if value.Type != intstr.String || len(utilvalidation.IsValidPercent(value.StrVal)) > 0 {
		return 0, false
	}
	percent, err := strconv.Atoi(strings.TrimSuffix(value.StrVal, "%"))
	return percent, err == nil
}

// Host requires a subdomain whose first label can be the wildcard "*".
func Host(p *field.Path, host string) field.ErrorList {
	if strings.Contains(host, "*") {
		return Problems(p, host, utilvalidation.IsWildcardDNS1123Subdomain(host))
	}
	return Subdomain(p, host)
}

// HostnameWarnings warns of a pod's name that is not a valid host name.
func HostnameWarnings(name string) []string { return labelWarnings(name, "the Pod's hostname") }

// PodNameWarnings warns if the name of an object cannot be the prefix of its
// pods' names and host names.
func PodNameWarnings(name string) []string { return labelWarnings(name, "Pod names and hostnames") }

func labelWarnings(name, use string) []string {
	problems := utilvalidation.IsDNS1123Label(name)
	if len(problems) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("metadata.name: this is used in %s, which can result in surprising behavior; a DNS label is recommended: %v", use, problems)}
}
