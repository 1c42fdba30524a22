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

// maxMapKeys and maxListItems are how many keys one map, and items one list, may
// have whose owners are tracked one by one. The sets of owned fields are
// sorted slices, so that the time grows with the square of the longest map or
// list (the number of all fields does not matter): about a second for 80,000.
// etcd's 1.5 MiB have room for fewer: with its owner a key takes 20 bytes, an
// item 24.
const (
	maxMapKeys   = 128 << 10
	maxListItems = 64 << 10
	// maxOwnersBytes bounds the owners that a client sends, for the same
	// reason.
	maxOwnersBytes = 1536 << 10
)

var errTooWideBefore = errors.New("the stored object is too wide for its owners to be tracked")

func errTooWide() error {
	return apierrors.NewRequestEntityTooLargeError("maps of more than 131072 keys and merged lists of more than 65536 items cannot be stored with their owners, split the object")
}

// checkUpdate refuses a write after which an object's owners would take too
// long to track. What is stored without owners stays so, and what is too wide
// already can be made smaller.
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

// checkWidth refuses an object whose owners would take too long to track.
func (t *tracker) checkWidth(obj resource.Object) error {
	if !long(reflect.ValueOf(content(obj))) {
		return nil
	}
	versioned, err := t.conversion.ConvertToVersion(obj, t.version.GroupVersion)
	if err != nil {
		return nil // the merging says what is wrong
	}
	return t.checkValue(content(versioned.(resource.Object)))
}

// checkConfiguration is checkWidth for what is applied.
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
	if t.root == nil || v == nil || tooWide(t.root.Schema(), t.root.TypeRef(), v) {
		return errTooWide()
	}
	return nil
}

// content is what an object's fields are found in.
func content(obj resource.Object) any {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return u.Object
	}
	return obj
}

// long says that a value has a long map or list, whether or not its elements
// are tracked one by one.
func long(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return !v.IsNil() && long(v.Elem())
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return false
		}
		for i := range v.NumField() {
			if long(v.Field(i)) {
				return true
			}
		}
	case reflect.Slice:
		if isScalar(v.Type()) {
			return false
		}
		if v.Len() > maxListItems {
			return true
		}
		for i := range v.Len() {
			if long(v.Index(i)) {
				return true
			}
		}
	case reflect.Map:
		if v.Len() > maxMapKeys {
			return true
		}
		if isScalar(v.Type().Elem()) {
			return false
		}
		for entries := v.MapRange(); entries.Next(); {
			if long(entries.Value()) {
				return true
			}
		}
	}
	return false
}

// tooWide says that a value has too long a map or list whose elements are
// tracked one by one.
func tooWide(types *schema.Schema, ref schema.TypeRef, v value.Value) bool {
	atom, ok := types.Resolve(ref)
	switch {
	case !ok:
	case v.IsList() && atom.List != nil && atom.List.ElementRelationship == schema.Associative:
		list := v.AsList()
		if list.Length() > maxListItems {
			return true
		}
		for i := range list.Length() {
			if tooWide(types, atom.List.ElementType, list.At(i)) {
				return true
			}
		}
	case v.IsMap() && atom.Map != nil && atom.Map.ElementRelationship != schema.Atomic:
		entries := v.AsMap()
		if entries.Length() > maxMapKeys {
			return true
		}
		return !entries.Iterate(func(key string, entry value.Value) bool {
			of := atom.Map.ElementType
			if declared, ok := atom.Map.FindField(key); ok {
				of = declared.Type
			}
			return !tooWide(types, of, entry)
		})
	}
	return false
}

// rootOf is an empty object in the types that fields are merged by; nil if
// there is none.
func rootOf(types managedfields.TypeConverter, version *resource.Version, kind string) *typed.TypedValue {
	empty := &unstructured.Unstructured{}
	empty.SetGroupVersionKind(version.GroupVersion.WithKind(kind))
	root, err := types.ObjectToTyped(empty)
	if err != nil {
		return nil
	}
	return root
}
