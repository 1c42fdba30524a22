package validators

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Shown returns a struct of the API in the form in which upstream's messages
// show it: JSON with the Go names of all fields, in upstream's order. Types of
// apimachinery keep their own JSON, and embedded metadata its names.
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
		return showPodSpec(out, spec)
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
	if names := shownFields(v.Type()); names != nil {
		for _, name := range names {
			f, _ := v.Type().FieldByName(name)
			if err := showField(out, f, v.FieldByName(name), first); err != nil {
				return err
			}
		}
		return nil
	}
	for i := range v.NumField() {
		if err := showField(out, v.Type().Field(i), v.Field(i), first); err != nil {
			return err
		}
	}
	return nil
}

func showField(out *bytes.Buffer, f reflect.StructField, v reflect.Value, first *bool) error {
	switch {
	case f.Anonymous && f.Type.Kind() == reflect.Struct && keepsOwnJSON(f.Type):
		data, err := json.Marshal(v.Interface())
		if inner := bytes.TrimSuffix(bytes.TrimPrefix(data, []byte("{")), []byte("}")); len(inner) > 0 {
			separate(out, first)
			out.Write(inner)
		}
		return err
	case f.Anonymous && f.Type.Kind() == reflect.Struct:
		return showFields(out, v, first)
	case f.Name == "DerivedAttributes" && isNil(v):
		return nil // a field of a disabled feature, shown only if it is set
	}
	separate(out, first)
	out.WriteString(`"` + f.Name + `":`)
	return show(out, v)
}

func separate(out *bytes.Buffer, first *bool) {
	if !*first {
		out.WriteByte(',')
	}
	*first = false
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
