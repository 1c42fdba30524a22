package apply

import (
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/coracle-io/coracle/internal/resource"
)

// wideMap is the number of keys from which the order of a map matters.
const wideMap = 4096

// ordered is a TypeConverter whose values iterate over the keys of wide maps in
// order. Go iterates over maps in random order, and sets of fields are sorted
// slices: each insertion would move half of the elements, in time quadratic in
// their number.
type ordered struct{ managedfields.TypeConverter }

// ObjectToTyped implements managedfields.TypeConverter.
func (o ordered) ObjectToTyped(obj runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	v, err := o.TypeConverter.ObjectToTyped(obj, options...)
	if err != nil || !wider(obj) {
		return v, err
	}
	return typed.AsTyped(orderedValue{v.AsValue()}, v.Schema(), v.TypeRef(), options...)
}

func wider(obj runtime.Object) bool {
	of, ok := obj.(resource.Object)
	return ok && longer(reflect.ValueOf(content(of)), bounds{keys: wideMap, items: maxListItems})
}

// inOrder returns a value that iterates over wide maps in order.
func inOrder(v value.Value) value.Value {
	if v == nil || !v.IsMap() && !v.IsList() {
		return v
	}
	return orderedValue{v}
}

type orderedValue struct{ value.Value }

// AsMap implements value.Value.
func (v orderedValue) AsMap() value.Map { return orderedMap{v.Value.AsMap()} }

// AsMapUsing implements value.Value.
func (v orderedValue) AsMapUsing(value.Allocator) value.Map { return v.AsMap() }

// AsList implements value.Value.
func (v orderedValue) AsList() value.List { return orderedList{v.Value.AsList()} }

// AsListUsing implements value.Value.
func (v orderedValue) AsListUsing(value.Allocator) value.List { return v.AsList() }

type orderedMap struct{ value.Map }

// Get implements value.Map.
func (m orderedMap) Get(key string) (value.Value, bool) {
	v, ok := m.Map.Get(key)
	return inOrder(v), ok
}

// GetUsing implements value.Map.
func (m orderedMap) GetUsing(_ value.Allocator, key string) (value.Value, bool) { return m.Get(key) }

// Iterate implements value.Map.
func (m orderedMap) Iterate(f func(string, value.Value) bool) bool {
	if m.Length() < wideMap {
		return m.Map.Iterate(func(key string, v value.Value) bool { return f(key, inOrder(v)) })
	}
	keys := make([]string, 0, m.Length())
	m.Map.Iterate(func(key string, _ value.Value) bool {
		keys = append(keys, key)
		return true
	})
	slices.Sort(keys)
	for _, key := range keys {
		if v, ok := m.Get(key); ok && !f(key, v) {
			return false
		}
	}
	return true
}

// IterateUsing implements value.Map.
func (m orderedMap) IterateUsing(_ value.Allocator, f func(string, value.Value) bool) bool {
	return m.Iterate(f)
}

// Zip implements value.Map.
func (m orderedMap) Zip(other value.Map, order value.MapTraverseOrder, f func(key string, lhs, rhs value.Value) bool) bool {
	return m.ZipUsing(value.HeapAllocator, other, order, f)
}

// ZipUsing implements value.Map.
func (m orderedMap) ZipUsing(a value.Allocator, other value.Map, order value.MapTraverseOrder, f func(key string, lhs, rhs value.Value) bool) bool {
	if o, ok := other.(orderedMap); ok {
		other = o.Map
	}
	if m.Length() >= wideMap || other != nil && other.Length() >= wideMap {
		order = value.LexicalKeyOrder
	}
	return m.Map.ZipUsing(a, other, order, func(key string, lhs, rhs value.Value) bool {
		return f(key, inOrder(lhs), inOrder(rhs))
	})
}

type orderedList struct{ value.List }

// At implements value.List.
func (l orderedList) At(i int) value.Value { return inOrder(l.List.At(i)) }

// AtUsing implements value.List.
func (l orderedList) AtUsing(_ value.Allocator, i int) value.Value { return l.At(i) }

// Range implements value.List.
func (l orderedList) Range() value.ListRange { return orderedRange{l.List.Range()} }

// RangeUsing implements value.List.
func (l orderedList) RangeUsing(value.Allocator) value.ListRange { return l.Range() }

type orderedRange struct{ value.ListRange }

// Item implements value.ListRange.
func (r orderedRange) Item() (int, value.Value) {
	i, v := r.ListRange.Item()
	return i, inOrder(v)
}
