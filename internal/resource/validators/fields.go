package validators

import (
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
)

// NotPositive is the message for a number that must be above 0.
const NotPositive = "must be greater than zero"

// StrictAddresses refuses IP addresses and CIDRs that parsers read differently,
// such as those with leading zeros.
const StrictAddresses = true

// KnownAddress returns value as a list if the stored object has it, and else nil.
// The checks of addresses take such a list of values that they do not refuse. A
// set keeps the check of many addresses from comparing each with each.
func KnownAddress(known sets.Set[string], value string) []string {
	if known.Has(value) {
		return []string{value}
	}
	return nil
}

// Enum requires value to be one of supported. The error lists them in order.
func Enum[T ~string](p *field.Path, value T, supported ...T) field.ErrorList {
	if slices.Contains(supported, value) {
		return nil
	}
	sorted := slices.Clone(supported)
	slices.Sort(sorted)
	return field.ErrorList{field.NotSupported(p, value, sorted)}
}

// Required requires a string that is not empty.
func Required(p *field.Path, value string) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(p, "")}
	}
	return nil
}

// QualifiedName requires a qualified name: an optional DNS subdomain and a
// slash, then letters, digits, '-', '_' and '.'.
func QualifiedName(p *field.Path, value string) field.ErrorList {
	return Problems(p, value, utilvalidation.IsQualifiedName(value))
}

// Labels requires well-formed labels.
func Labels(p *field.Path, set map[string]string) field.ErrorList {
	return metav1validation.ValidateLabels(set, p)
}

// Annotations requires well-formed annotations of at most 256 KiB in total.
func Annotations(p *field.Path, set map[string]string) field.ErrorList {
	return validation.ValidateAnnotations(set, p)
}

// TemplateMetadata refuses metadata of a template other than labels and
// annotations.
func TemplateMetadata(p *field.Path, m *metav1.ObjectMeta) field.ErrorList {
	errs := Annotations(p.Child("annotations"), m.Annotations)
	errs = append(errs, Labels(p.Child("labels"), m.Labels)...)
	v := reflect.ValueOf(*m)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if name != "Annotations" && name != "Labels" && !v.Field(i).IsZero() {
			errs = append(errs, field.Forbidden(p.Child(strings.ToLower(name[:1])+name[1:]), "cannot be set"))
		}
	}
	return errs
}

// PortNumberOrName requires a port number or the name of a port.
func PortNumberOrName(p *field.Path, port intstr.IntOrString) field.ErrorList {
	switch port.Type {
	case intstr.Int:
		return Problems(p, port.IntValue(), utilvalidation.IsValidPortNum(port.IntValue()))
	case intstr.String:
		return Problems(p, port.StrVal, utilvalidation.IsValidPortName(port.StrVal))
	default:
		return field.ErrorList{field.InternalError(p, fmt.Errorf("unknown type: %v", port.Type))}
	}
}

// Protocol requires a transport protocol of Services and ports.
func Protocol(p *field.Path, value corev1.Protocol) field.ErrorList {
	return Enum(p, value, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
}

// DescendingPath requires a relative file path that stays below the directory
// where it starts.
func DescendingPath(p *field.Path, value string) field.ErrorList {
	var errs field.ErrorList
	if path.IsAbs(value) {
		errs = append(errs, field.Invalid(p, value, "must be a relative path"))
	}
	return append(errs, NoBacksteps(p, value)...)
}

// NoBacksteps requires a file path without the element "..".
func NoBacksteps(p *field.Path, value string) field.ErrorList {
	if HasBacksteps(value) {
		return field.ErrorList{field.Invalid(p, value, "must not contain '..'")}
	}
	return nil
}

// HasBacksteps reports whether a file path has the element "..".
func HasBacksteps(path string) bool { return slices.Contains(strings.Split(path, "/"), "..") }

// ImmutableValue requires value to be unchanged. Unlike [Immutable], its error
// shows structs of the core API in full.
func ImmutableValue(p *field.Path, value, old any) field.ErrorList {
	if resource.Equal(value, old) {
		return nil
	}
	return field.ErrorList{field.Invalid(p, BadValue(value), validation.FieldImmutableErrorMsg)}
}

// BadValue returns value in the form in which errors show it: structs of the
// core API, and pointers to them, as [Shown] does, and anything else as it is.
func BadValue(value any) any {
	t := reflect.TypeOf(value)
	if t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct || t.PkgPath() != "k8s.io/api/core/v1" || reflect.ValueOf(value).IsZero() && reflect.TypeOf(value).Kind() == reflect.Pointer {
		return value
	}
	return Shown(value)
}

// Diff returns a unified diff of two values in the form of [Shown].
func Diff(was, is any) string {
	return diff.Diff(Shown(was), Shown(is))
}
