package core

import (
	"bytes"
	"encoding/json"
	"reflect"

	"k8s.io/apimachinery/pkg/util/diff"
)

// changes shows how is differs from was, as a unified diff of the two with
// the fields' Go names.
func changes(was, is any) string {
	return diff.Diff(untagged{was}, untagged{is})
}

// untagged is a value of the API encoded without its JSON tags: every field,
// by its Go name.
type untagged struct{ value any }

func (u untagged) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	err := writeUntagged(&out, reflect.ValueOf(u.value))
	return out.Bytes(), err
}

const apiPackage = "k8s.io/api/core/v1"

func writeUntagged(out *bytes.Buffer, v reflect.Value) error {
	switch {
	case !v.IsValid(), (v.Kind() == reflect.Pointer || v.Kind() == reflect.Map || v.Kind() == reflect.Slice) && v.IsNil():
		out.WriteString("null")
		return nil
	case v.Kind() == reflect.Pointer:
		return writeUntagged(out, v.Elem())
	case v.Kind() == reflect.Struct && v.Type().PkgPath() == apiPackage:
		out.WriteByte('{')
		first := true
		if err := writeUntaggedFields(out, v, &first); err != nil {
			return err
		}
		out.WriteByte('}')
		return nil
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		out.WriteByte('[')
		for i := range v.Len() {
			if i > 0 {
				out.WriteByte(',')
			}
			if err := writeUntagged(out, v.Index(i)); err != nil {
				return err
			}
		}
		out.WriteByte(']')
		return nil
	}
	encoded, err := json.Marshal(v.Interface())
	out.Write(encoded)
	return err
}

func writeUntaggedFields(out *bytes.Buffer, v reflect.Value, first *bool) error {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous && f.Type.Kind() == reflect.Struct {
			if err := writeUntaggedFields(out, v.Field(i), first); err != nil {
				return err
			}
			continue
		}
		if !*first {
			out.WriteByte(',')
		}
		*first = false
		out.WriteString(`"` + f.Name + `":`)
		if err := writeUntagged(out, v.Field(i)); err != nil {
			return err
		}
	}
	return nil
}
