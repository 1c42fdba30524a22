package rule

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Shown is the form in which messages show a whole struct of the API: JSON
// with the fields' Go names, all of them and in their order, as clients know
// it. Types of apimachinery keep their own JSON.
func Shown(v any) any { return shown{reflect.ValueOf(v)} }

type shown struct{ value reflect.Value }

// MarshalJSON implements json.Marshaler.
func (s shown) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	err := show(&out, s.value)
	return out.Bytes(), err
}

func show(out *bytes.Buffer, v reflect.Value) error {
	if !v.IsValid() || isNil(v) {
		out.WriteString("null")
		return nil
	}
	if spec, ok := v.Interface().(corev1.PodSpec); ok {
		return show(out, reflect.ValueOf(toShownPodSpec(spec)))
	}
	if keepsOwnJSON(v.Type()) {
		return marshal(out, v)
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return show(out, v.Elem())
	case reflect.Struct:
		out.WriteByte('{')
		first := true
		err := showFields(out, v, &first)
		out.WriteByte('}')
		return err
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return marshal(out, v)
		}
		out.WriteByte('[')
		for i := range v.Len() {
			if i > 0 {
				out.WriteByte(',')
			}
			if err := show(out, v.Index(i)); err != nil {
				return err
			}
		}
		out.WriteByte(']')
		return nil
	default:
		return marshal(out, v)
	}
}

func showFields(out *bytes.Buffer, v reflect.Value, first *bool) error {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous && f.Type.Kind() == reflect.Struct {
			if err := showFields(out, v.Field(i), first); err != nil {
				return err
			}
			continue
		}
		if f.Name == "DerivedAttributes" && isNil(v.Field(i)) {
			continue // of a feature that is off: shown only where it is used
		}
		if !*first {
			out.WriteByte(',')
		}
		*first = false
		out.WriteString(`"` + f.Name + `":`)
		if err := show(out, v.Field(i)); err != nil {
			return err
		}
	}
	return nil
}

func keepsOwnJSON(t reflect.Type) bool {
	marshaler := reflect.TypeFor[json.Marshaler]()
	return t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler) ||
		t.Kind() == reflect.Struct && strings.HasPrefix(t.PkgPath(), "k8s.io/apimachinery/")
}

func isNil(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Slice, reflect.Map:
		return v.IsNil()
	default:
		return false
	}
}

func marshal(out *bytes.Buffer, v reflect.Value) error {
	data, err := json.Marshal(v.Interface())
	out.Write(data)
	return err
}
