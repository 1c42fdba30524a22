package apply

import (
	"errors"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// maxFields is how many fields an object may have for their owners to be
// tracked. The time that it takes grows with the square of their number: half
// a minute for 150,000.
const maxFields = 20_000

var errTooManyFields = errors.New("the object has too many fields for their owners to be tracked")

func errCannotApply() error {
	return apierrors.NewRequestEntityTooLargeError("objects of more than 20000 fields cannot be applied, create or replace them")
}

// tooMany says that a value has more elements of maps and lists than are tracked.
func tooMany(value any) bool {
	if u, ok := value.(*unstructured.Unstructured); ok {
		value = u.Object
	}
	left := maxFields
	return !withinFields(reflect.ValueOf(value), &left)
}

// withinFields takes a value's elements away from what is left; false says
// that there is not enough.
func withinFields(v reflect.Value, left *int) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return v.IsNil() || withinFields(v.Elem(), left)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return true
		}
		for i := range v.NumField() {
			if !withinFields(v.Field(i), left) {
				return false
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return true
		}
		if *left -= v.Len(); *left < 0 {
			return false
		}
		for i := range v.Len() {
			if !withinFields(v.Index(i), left) {
				return false
			}
		}
	case reflect.Map:
		if *left -= v.Len(); *left < 0 {
			return false
		}
		if kind := v.Type().Elem().Kind(); kind == reflect.String || kind == reflect.Slice && v.Type().Elem().Elem().Kind() == reflect.Uint8 {
			return true
		}
		for entries := v.MapRange(); entries.Next(); {
			if !withinFields(entries.Value(), left) {
				return false
			}
		}
	}
	return true
}
