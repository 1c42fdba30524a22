package core

import (
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/rule"
)

// Rules that several kinds have in common.

const (
	isNegative      = validation.IsNegativeErrorMsg
	isNotPositive   = "must be greater than zero"
	fieldImmutable  = validation.FieldImmutableErrorMsg
	invalidFileMode = "must be a number between 0 and 0777 (octal), both inclusive"
)

func equal(a, b any) bool { return resource.Equal(a, b) }

func immutable(value, old any, path *field.Path) field.ErrorList {
	if equal(value, old) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, shown(value), fieldImmutable)}
}

const corev1Package = "k8s.io/api/core/v1"

// shown is value as messages show it: structs in the server's own form.
func shown(value any) any {
	t := reflect.TypeOf(value)
	if t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct || t.PkgPath() != corev1Package || reflect.ValueOf(value).IsZero() && reflect.TypeOf(value).Kind() == reflect.Pointer {
		return value
	}
	return rule.Shown(value)
}

func nonnegative(value int64, path *field.Path) field.ErrorList {
	return validation.ValidateNonnegativeField(value, path)
}

// invalid turns the messages of a check into errors about value.
func invalid(path *field.Path, value any, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, msg := range messages {
		errs = append(errs, field.Invalid(path, value, msg))
	}
	return errs
}

// oneOf checks an enumerated value, which may not be empty.
func oneOf[T ~string](value T, path *field.Path, supported ...T) field.ErrorList {
	if sets.New(supported...).Has(value) {
		return nil
	}
	sorted := slices.Clone(supported)
	slices.Sort(sorted)
	return field.ErrorList{field.NotSupported(path, value, sorted)}
}

// required checks that a string is set.
func required(value string, path *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return nil
}

func nameIsDNSSubdomain(name string) []string { return validation.NameIsDNSSubdomain(name, false) }

func validateAnnotations(annotations map[string]string, path *field.Path) field.ErrorList {
	return validation.ValidateAnnotations(annotations, path)
}
