package component

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fieldFlag is a flag that sets one field of a configuration. A component has a
// table of them (kubeletFields, schedulerFields) and one configuration, whose
// values are the defaults of the flags:
//
//	default  <  configuration file  <  flag that was given
//
// bindFields binds the flags to the fields of that configuration, so that a flag
// replaces its default. Without a file, the component runs with that
// configuration. With a file, that configuration supplies the fields that the
// file leaves out, and setGiven then sets the fields whose flags were given once
// more.
type fieldFlag struct {
	name  string
	field string // path of the field in a configuration file, with dots
	kind  fieldKind
	usage string
}

// fieldKind is the type of a field, under the name that help texts show.
type fieldKind string

const (
	textField      fieldKind = "string"
	boolField      fieldKind = "bool"
	numberField    fieldKind = "int32"
	number64Field  fieldKind = "int64"
	durationField  fieldKind = "duration"
	listField      fieldKind = "strings"
	mapField       fieldKind = "mapStringString"                    // name=value,name=value
	thresholdField fieldKind = "mapStringString<"                   // name<value,name<value
	boolMapField   fieldKind = "mapStringBool"                      // name=true,name=false
	headerField    fieldKind = "colonSeparatedMultimapStringString" // name:value,name:value
)

// many reports whether the values of flags that are given several times add up.
func (k fieldKind) many() bool {
	return slices.Contains([]fieldKind{listField, mapField, thresholdField, boolMapField, headerField}, k)
}

// separator is between the names and the values of maps.
func (k fieldKind) separator() string {
	switch k {
	case thresholdField:
		return "<"
	case headerField:
		return ":"
	}
	return "="
}

// bindFields binds the flags of a table to the fields of a configuration, a
// pointer to a struct. The fields have the defaults. It returns the values of the
// flags, for setGiven.
func bindFields(fs *pflag.FlagSet, configuration any, table []fieldFlag) []*fieldValue {
	var values []*fieldValue
	for _, f := range table {
		one := &fieldValue{configuration: configuration, flag: f}
		value := pflag.Value(one)
		if f.kind == listField {
			value = fieldList{one}
		}
		flag := fs.VarPF(value, f.name, "", f.usage)
		if f.kind == boolField {
			flag.NoOptDefVal = "true"
		}
		values = append(values, one)
	}
	return values
}

// setGiven sets the fields of another configuration whose flags were given.
func setGiven(configuration any, values []*fieldValue) error {
	var errs []error
	for _, v := range values {
		if !v.given {
			continue
		}
		if err := (&fieldValue{configuration: configuration, flag: v.flag}).Set(v.text); err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", v.flag.name, err))
		}
	}
	return errors.Join(errs...)
}

// fieldValue is the value of a fieldFlag.
type fieldValue struct {
	configuration any // pointer to a struct that has the field
	flag          fieldFlag
	text          string // as it was given
	given         bool
}

// Type implements pflag.Value.
func (v *fieldValue) Type() string { return strings.TrimSuffix(string(v.flag.kind), "<") }

// String implements pflag.Value. Unless the flag was given, it returns what the
// configuration has.
func (v *fieldValue) String() string {
	if v.given || v.configuration == nil { // pflag asks a zero value too
		return v.text
	}
	return v.flag.kind.format(fieldAt(reflect.ValueOf(v.configuration), v.flag.field))
}

// Set implements pflag.Value. The first value replaces what the configuration has,
// of feature gates those that it names.
func (v *fieldValue) Set(text string) error {
	kind := v.flag.kind
	if v.given && v.text != "" && kind.many() {
		text = v.text + "," + text
	}
	value, err := kind.parse(text)
	if err != nil {
		return err
	}
	if kind != boolMapField {
		if field := fieldAt(reflect.ValueOf(v.configuration), v.flag.field); field.Kind() == reflect.Map {
			field.SetZero()
		}
	}
	for _, name := range slices.Backward(strings.Split(v.flag.field, ".")) {
		value = map[string]any{name: value}
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(v.configuration); err != nil {
		return fmt.Errorf("want a value of the type %s", v.Type())
	}
	v.text, v.given = text, true
	return nil
}

// fieldList is the value of a flag that sets a list. Its values are checked one by
// one.
type fieldList struct{ *fieldValue }

// Append implements pflag.SliceValue.
func (l fieldList) Append(value string) error { return l.Set(value) }

// Replace implements pflag.SliceValue.
func (l fieldList) Replace(values []string) error {
	l.given = false
	return l.Set(strings.Join(values, ","))
}

// GetSlice implements pflag.SliceValue.
func (l fieldList) GetSlice() []string {
	if text := l.String(); text != "" {
		return strings.Split(text, ",")
	}
	return nil
}

// parse returns a value of the kind in the form that JSON has for it.
func (k fieldKind) parse(text string) (any, error) {
	switch k {
	case boolField:
		return strconv.ParseBool(text)
	case numberField:
		return strconv.ParseInt(text, 0, 32)
	case number64Field:
		return strconv.ParseInt(text, 0, 64)
	case durationField:
		_, err := time.ParseDuration(text)
		return text, err
	case listField:
		if text == "" {
			return []string{}, nil
		}
		return strings.Split(text, ","), nil
	case mapField, thresholdField, boolMapField, headerField:
		return k.parseMap(text)
	}
	return text, nil
}

func (k fieldKind) parseMap(text string) (any, error) {
	all, lists := map[string]any{}, map[string][]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, k.separator())
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok {
			return nil, fmt.Errorf("%q: want name%svalue", pair, k.separator())
		}
		switch k {
		case headerField:
			lists[name] = append(lists[name], value)
			all[name] = lists[name]
		case boolMapField:
			on, err := strconv.ParseBool(value)
			if err != nil {
				return nil, fmt.Errorf("%q: want %s=true or %s=false", pair, name, name)
			}
			all[name] = on
		default:
			all[name] = value
		}
	}
	return all, nil
}

// format returns the text of a field's value that parse reads, "" for nil.
func (k fieldKind) format(field reflect.Value) string {
	if field.Kind() == reflect.Pointer {
		if field.IsNil() {
			return ""
		}
		field = field.Elem()
	}
	var pairs []string
	switch value := field.Interface().(type) {
	case metav1.Duration:
		return value.Duration.String()
	case []string:
		return strings.Join(value, ",")
	case map[string]string:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			pairs = append(pairs, name+k.separator()+value[name])
		}
	case map[string]bool:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			pairs = append(pairs, fmt.Sprint(name, k.separator(), value[name]))
		}
	case map[string][]string:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			for _, one := range value[name] {
				pairs = append(pairs, name+k.separator()+one)
			}
		}
	default:
		return fmt.Sprint(value)
	}
	return strings.Join(pairs, ",")
}

// fieldAt returns the field of a struct at a path of names in configuration
// files.
func fieldAt(v reflect.Value, path string) reflect.Value {
	for name := range strings.SplitSeq(path, ".") {
		v = reflect.Indirect(v)
		for _, f := range reflect.VisibleFields(v.Type()) { // including fields of embedded structs
			if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == name {
				v = v.FieldByIndex(f.Index)
				break
			}
		}
	}
	return v
}
