package amount

import (
	"cmp"
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/coracle-io/coracle/internal/protomessage"
)

// members are the fields of a struct type in whose values there are quantities.
type members struct {
	// byName has them by their JSON names, with the members of embedded structs.
	byName map[string]reflect.Type
	// byNumber has them by their numbers in protobuf, where embedded structs
	// are fields.
	byNumber map[protowire.Number]member
}

// member is a field. An embedded struct has no name.
type member struct {
	name string
	of   reflect.Type
}

// knownMembers caches the results of membersOf by type.
var knownMembers sync.Map

// membersOf returns the members of a struct type.
func membersOf(t reflect.Type) *members {
	if known, ok := knownMembers.Load(t); ok {
		return known.(*members)
	}
	m := &members{byName: map[string]reflect.Type{}, byNumber: map[protowire.Number]member{}}
	for i := range t.NumField() {
		f := t.Field(i)
		if !holds(f.Type, map[reflect.Type]bool{}) {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "" && f.Anonymous && pointee(f.Type).Kind() == reflect.Struct:
			maps.Copy(m.byName, membersOf(pointee(f.Type)).byName)
		case name != "-":
			name = cmp.Or(name, f.Name)
			m.byName[name] = f.Type
		}
		if number, ok := protomessage.NumberOf(f); ok {
			m.byNumber[number] = member{name, f.Type}
		}
	}
	knownMembers.Store(t, m)
	return m
}

// named returns the type of a member. Some decoders ignore the case of names.
func (m *members) named(name string) (reflect.Type, bool) {
	if t, ok := m.byName[name]; ok {
		return t, true
	}
	for known, t := range m.byName {
		if strings.EqualFold(known, name) {
			return t, true
		}
	}
	return nil, false
}

// holds reports whether there are quantities in values of a type. seen has the
// types above it.
func holds(t reflect.Type, seen map[reflect.Type]bool) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return holds(t.Elem(), seen)
	case reflect.Struct:
	default:
		return false
	}
	if isQuantity(t) {
		return true
	}
	if seen[t] || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return false
	}
	seen[t] = true
	for i := range t.NumField() {
		if holds(t.Field(i).Type, seen) {
			return true
		}
	}
	return false
}

func isQuantity(t reflect.Type) bool { return t == reflect.TypeFor[resource.Quantity]() }

// pointee returns the type that a type points to, or the type itself if it is
// no pointer.
func pointee(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// target returns the type that into points to, and whether there are quantities
// in its values.
func target(into any) (reflect.Type, bool) {
	t := pointee(reflect.TypeOf(into))
	if t.Kind() == reflect.Struct && !isQuantity(t) {
		return t, len(membersOf(t).byName) > 0
	}
	return t, holds(t, map[reflect.Type]bool{})
}
