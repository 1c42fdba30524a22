package apply

import (
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// form is the granularity at which the fields of a value are owned.
type form uint8

const (
	leaf      form = iota // owned as a whole: scalars, atomic lists and maps
	structure             // field by field
	mapping               // key by key
	listing               // item by item, identified by keys or, in sets, by value
	opaque                // unsupported
)

// shape describes how to walk the values of a Go type by its schema.
type shape struct {
	form   form
	fields []fieldShape
	items  *shape                   // of mappings and listings
	keys   [][]int                  // the indexes of the keys in a listing's items; none in sets
	entry  []*value.FieldCacheEntry // of the keys, to find out whether JSON omits them
	// identities means that the key of a listing's items is an identity.
	identities bool
}

type fieldShape struct {
	index []int
	entry *value.FieldCacheEntry
	shape *shape
}

// shapes builds the shapes of one schema. Types may be recursive.
type shapes struct {
	schema *schema.Schema
	known  map[shapeKey]*shape
}

// shapeKey identifies a named type of a schema with the relationship at the
// place of its use.
type shapeKey struct {
	goType       reflect.Type
	name         string
	relationship schema.ElementRelationship
}

// shapeOf returns the shape of objects like sample; nil if it is not supported.
func shapeOf(sample *typed.TypedValue, goType reflect.Type) *shape {
	s := shapes{schema: sample.Schema(), known: map[shapeKey]*shape{}}
	made := s.of(goType, sample.TypeRef())
	if made.form != structure {
		return nil
	}
	return made
}

func (s *shapes) of(t reflect.Type, ref schema.TypeRef) *shape {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if ref.NamedType == nil {
		made := &shape{}
		s.fill(made, t, ref)
		return made
	}
	key := shapeKey{goType: t, name: *ref.NamedType}
	if ref.ElementRelationship != nil {
		key.relationship = *ref.ElementRelationship
	}
	if known, ok := s.known[key]; ok {
		return known
	}
	made := &shape{}
	s.known[key] = made
	s.fill(made, t, ref)
	return made
}

func (s *shapes) fill(made *shape, t reflect.Type, ref schema.TypeRef) {
	made.form = opaque
	atom, ok := s.schema.Resolve(ref)
	if !ok {
		return
	}
	converted := value.TypeReflectEntryOf(t).CanConvertToUnstructured()
	switch {
	case atom.Scalar != nil && t == reflect.TypeFor[intstr.IntOrString]():
		made.form = leaf // the schema allows all values, but the type only scalars
	case atom.Scalar != nil && atom.List == nil && atom.Map == nil:
		if isScalar(t) && !converted || slices.Contains(scalarTypes(), t) {
			made.form = leaf
		}
	case converted || atom.Scalar != nil:
	case atom.List != nil && atom.Map == nil && t.Kind() == reflect.Slice:
		s.fillList(made, t, atom.List)
	case atom.Map != nil && atom.List == nil:
		s.fillMap(made, t, atom.Map)
	}
}

// scalarTypes returns the types that marshal themselves as scalars.
func scalarTypes() []reflect.Type {
	return []reflect.Type{
		reflect.TypeFor[resource.Quantity](),
		reflect.TypeFor[metav1.Time](),
		reflect.TypeFor[metav1.MicroTime](),
		reflect.TypeFor[metav1.Duration](),
	}
}

func isScalar(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Float32, reflect.Float64:
		return true
	case reflect.Slice:
		return t.Elem().Kind() == reflect.Uint8
	}
	return false
}

func (s *shapes) fillList(made *shape, t reflect.Type, list *schema.List) {
	if list.ElementRelationship != schema.Associative {
		made.form = leaf
		return
	}
	items := s.of(t.Elem(), list.ElementType)
	if len(list.Keys) == 0 {
		if isScalar(t.Elem()) && items.form == leaf {
			made.form, made.items = listing, items
		}
		return
	}
	item := t.Elem()
	indexes := map[string][]int{}
	if item.Kind() != reflect.Struct || items.form != structure && items.form != leaf || !jsonFields(item, nil, indexes) {
		return
	}
	for _, key := range list.Keys {
		index, entry := indexes[key], value.TypeReflectEntryOf(item).Fields()[key]
		if index == nil || entry == nil || !isScalar(item.FieldByIndex(index).Type) {
			return
		}
		made.keys = append(made.keys, index)
		made.entry = append(made.entry, entry)
	}
	made.form, made.items = listing, items
	made.identities = len(list.Keys) == 1 && isIdentity(list.Keys[0]) && item.FieldByIndex(made.keys[0]).Type.Kind() == reflect.String
}

func (s *shapes) fillMap(made *shape, t reflect.Type, m *schema.Map) {
	switch {
	case m.ElementRelationship == schema.Atomic:
		made.form = leaf
	case t.Kind() == reflect.Map && t.Key().Kind() == reflect.String && len(m.Fields) == 0:
		made.items = s.of(t.Elem(), m.ElementType)
		if made.items.form == leaf {
			made.form = mapping
		}
	case t.Kind() == reflect.Struct:
		s.fillStructure(made, t, m)
	}
}

func (s *shapes) fillStructure(made *shape, t reflect.Type, m *schema.Map) {
	indexes := map[string][]int{}
	if !jsonFields(t, nil, indexes) {
		return
	}
	// Register the shape before its fields, which may be recursive.
	made.form = structure
	for _, entry := range value.TypeReflectEntryOf(t).OrderedFields() {
		index, ok := indexes[entry.JsonName]
		if !ok {
			made.form, made.fields = opaque, nil
			return
		}
		f := fieldShape{index: index, entry: entry, shape: &shape{form: opaque}}
		if declared, ok := m.FindField(entry.JsonName); ok {
			f.shape = s.of(t.FieldByIndex(index).Type, declared.Type)
		}
		if entry.JsonName == "managedFields" && t == reflect.TypeFor[metav1.ObjectMeta]() {
			continue // has no managers, and is removed before objects are compared
		}
		made.fields = append(made.fields, f)
	}
}

// jsonFields returns the indexes of a struct's fields by their names in JSON;
// false if some are behind an embedded pointer.
func jsonFields(t reflect.Type, at []int, found map[string][]int) bool {
	for i := range t.NumField() {
		f := t.Field(i)
		index := append(slices.Clone(at), i)
		name, embedded := jsonName(f)
		switch {
		case name == "-":
		case embedded && f.Type.Kind() == reflect.Struct:
			if !jsonFields(f.Type, index, found) {
				return false
			}
		case embedded:
			return false
		default:
			found[name] = index
		}
	}
	return true
}
