package apply

import (
	"errors"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/coracle-io/coracle/internal/resource"
)

// maxMapKeys and maxListItems bound the keys of one map, and the items of one
// list, whose owners are tracked one by one. An object of etcd's default limit of
// 1.5 MiB has fewer: a key with its owner takes 20 bytes, an item 24.
//
// Sets of owned fields are sorted slices. Appending is cheap, but an insertion
// moves the elements after it, so that the time for a list in the wrong order
// is quadratic in its length. Maps are iterated in order.
const (
	maxMapKeys   = 128 << 10
	maxListItems = 64 << 10
	// maxMoves bounds how many elements the insertions of one list move: a list
	// of 14,000 items in reverse order, or of 20,000 in any order.
	maxMoves = 100_000_000
	// maxOwnersBytes bounds the managed fields that a client sends.
	maxOwnersBytes = 1536 << 10
)

var errTooWideBefore = errors.New("the stored object is too wide for its owners to be tracked")

func errTooWide() error {
	return apierrors.NewRequestEntityTooLargeError("maps of more than 131072 keys and merged lists of more than 65536 items cannot be stored with their owners, split the object")
}

func errOutOfOrder() error {
	return apierrors.NewRequestEntityTooLargeError("merged lists of more than about 14000 items are stored only in the order of their keys, sort or split them")
}

// checkUpdate refuses a write if tracking the managers of the object would take
// too long. Objects that are stored without managers may stay so, and objects
// that are already too wide may become smaller.
func (t *tracker) checkUpdate(live, obj resource.Object) error {
	var owners int
	for _, e := range obj.GetManagedFields() {
		if e.FieldsV1 != nil {
			owners += len(e.FieldsV1.GetRawBytes())
		}
	}
	if owners > maxOwnersBytes {
		return errTooWide()
	}
	stored := live.GetUID() != ""
	if !stored || len(live.GetManagedFields())+len(obj.GetManagedFields()) > 0 {
		if err := t.checkWidth(obj); err != nil {
			return err
		}
	}
	if stored && t.checkWidth(live) != nil {
		return errTooWideBefore
	}
	return nil
}

// checkWidth refuses an object whose managers would take too long to track.
func (t *tracker) checkWidth(obj resource.Object) error {
	if !long(reflect.ValueOf(content(obj))) {
		return nil
	}
	versioned, err := t.conversion.ConvertToVersion(obj, t.version.GroupVersion)
	if err != nil {
		return nil // the merge returns the error
	}
	return t.checkValue(content(versioned.(resource.Object)))
}

// checkConfiguration is checkWidth for an applied configuration.
func (t *tracker) checkConfiguration(configuration map[string]any) error {
	if !long(reflect.ValueOf(configuration)) {
		return nil
	}
	return t.checkValue(configuration)
}

func (t *tracker) checkValue(of any) error {
	var v value.Value
	if m, ok := of.(map[string]any); ok {
		v = value.NewValueInterface(m)
	} else if made, err := value.NewValueReflect(of); err == nil {
		v = made
	}
	if t.root == nil || v == nil {
		return errTooWide()
	}
	return checkFields(t.root.Schema(), t.root.TypeRef(), v)
}

// content returns the value with the object's fields.
func content(obj resource.Object) any {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return u.Object
	}
	return obj
}

// bounds are the maximal numbers of keys of a map and of items of a list.
type bounds struct{ keys, items int }

// long reports whether a value has a map or list that may be too long to be
// tracked, including atomic ones.
func long(v reflect.Value) bool { return longer(v, bounds{maxMapKeys, wideList}) }

// longer reports whether a value has a map or list beyond the bounds.
func longer(v reflect.Value, most bounds) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return !v.IsNil() && longer(v.Elem(), most)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return false
		}
		for i := range v.NumField() {
			if longer(v.Field(i), most) {
				return true
			}
		}
	case reflect.Slice:
		if isScalar(v.Type()) {
			return false
		}
		if v.Len() > most.items {
			return true
		}
		for i := range v.Len() {
			if longer(v.Index(i), most) {
				return true
			}
		}
	case reflect.Map:
		if v.Len() > most.keys {
			return true
		}
		if isScalar(v.Type().Elem()) {
			return false
		}
		for entries := v.MapRange(); entries.Next(); {
			if longer(entries.Value(), most) {
				return true
			}
		}
	}
	return false
}

// checkFields refuses a value with a map or list that is too long, or too
// unordered, for its elements to be tracked one by one.
func checkFields(types *schema.Schema, ref schema.TypeRef, v value.Value) error {
	atom, ok := types.Resolve(ref)
	switch {
	case !ok:
	case v.IsList() && atom.List != nil && atom.List.ElementRelationship == schema.Associative:
		list := v.AsList()
		if list.Length() > maxListItems {
			return errTooWide()
		}
		if list.Length() > wideList && moves(keysOf(atom.List, list)) > maxMoves {
			return errOutOfOrder()
		}
		for i := range list.Length() {
			if err := checkFields(types, atom.List.ElementType, list.At(i)); err != nil {
				return err
			}
		}
	case v.IsMap() && atom.Map != nil && atom.Map.ElementRelationship != schema.Atomic:
		entries := v.AsMap()
		if entries.Length() > maxMapKeys {
			return errTooWide()
		}
		var err error
		entries.Iterate(func(key string, entry value.Value) bool {
			of := atom.Map.ElementType
			if declared, ok := atom.Map.FindField(key); ok {
				of = declared.Type
			}
			err = checkFields(types, of, entry)
			return err == nil
		})
		return err
	}
	return nil
}

// rootOf returns an empty object of the merge's types; nil if there is none.
func rootOf(types managedfields.TypeConverter, version *resource.Version, kind string) *typed.TypedValue {
	empty := &unstructured.Unstructured{}
	empty.SetGroupVersionKind(version.GroupVersion.WithKind(kind))
	root, err := types.ObjectToTyped(empty)
	if err != nil {
		return nil
	}
	return root
}
