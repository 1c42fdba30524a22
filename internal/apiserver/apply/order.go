package apply

import (
	"encoding/json"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/coracle-io/coracle/internal/resource"
)

const (
	// wideList is the length from which the order of a list is checked.
	wideList = 4096
	// wideOwners is the size in bytes from which managed fields of a client are
	// sorted.
	wideOwners = 64 << 10
)

// keysOf returns the items of a list as path elements.
func keysOf(of *schema.List, list value.List) []fieldpath.PathElement {
	keys := make([]fieldpath.PathElement, list.Length())
	for i := range keys {
		item := list.At(i)
		if len(of.Keys) == 0 || !item.IsMap() {
			keys[i].Value = &item
			continue
		}
		fields := value.FieldList{}
		for _, name := range of.Keys {
			if v, ok := item.AsMap().Get(name); ok {
				fields = append(fields, value.Field{Name: name, Value: v})
			}
		}
		fields.Sort()
		keys[i].Key = &fields
	}
	return keys
}

// moves returns how many elements are moved if keys are inserted one by one
// into a sorted slice: the number of inversions. It sorts the keys.
func moves(keys []fieldpath.PathElement) int {
	if len(keys) < 2 {
		return 0
	}
	left, right := slices.Clone(keys[:len(keys)/2]), slices.Clone(keys[len(keys)/2:])
	sum := moves(left) + moves(right)
	for i := range keys {
		if len(right) == 0 || len(left) > 0 && left[0].Compare(right[0]) <= 0 {
			keys[i], left = left[0], left[1:]
		} else {
			keys[i], right = right[0], right[1:]
			sum += len(left)
		}
	}
	return sum
}

// sortOwners sorts managed fields that a client sends, and live does not have,
// into the order that parses fastest. It refuses those with very many items of
// one list, since their order is not visible in the text.
func sortOwners(live, obj resource.Object) error {
	before, entries := live.GetManagedFields(), obj.GetManagedFields()
	cloned := false
	for i := range entries {
		fields := entries[i].FieldsV1
		if fields == nil || len(fields.GetRawBytes()) < wideOwners || slices.ContainsFunc(before, func(e metav1.ManagedFieldsEntry) bool {
			return e.FieldsV1 != nil && fields.Equal(*e.FieldsV1)
		}) {
			continue
		}
		var owned any
		if json.Unmarshal(fields.GetRawBytes(), &owned) != nil {
			continue // the library returns the error
		}
		if manyItems(owned) {
			return errTooWide()
		}
		sorted, err := json.Marshal(owned) // sorts
		if err != nil {
			continue
		}
		if !cloned {
			entries, cloned = slices.Clone(entries), true
			obj.SetManagedFields(entries)
		}
		entries[i].FieldsV1 = metav1.NewFieldsV1(string(sorted))
	}
	return nil
}

// manyItems reports whether owned fields have very many items of one list.
func manyItems(owned any) bool {
	fields, _ := owned.(map[string]any)
	items := 0
	for name, below := range fields {
		if !strings.HasPrefix(name, "f:") {
			items++
		}
		if items > wideList || manyItems(below) {
			return true
		}
	}
	return false
}
