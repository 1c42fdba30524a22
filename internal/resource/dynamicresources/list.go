package dynamicresources

import (
	"maps"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// unlimited allows any number of items.
const unlimited = math.MaxInt

// validateItems checks the items of a list unless there are more than most.
func validateItems[T any](p *field.Path, items []T, most int, check func(*field.Path, *T) field.ErrorList) field.ErrorList {
	if len(items) > most {
		return field.ErrorList{field.TooMany(p, len(items), most)}
	}
	var errs field.ErrorList
	for i := range items {
		errs = append(errs, check(p.Index(i), &items[i])...)
	}
	return errs
}

// validateUniqueItems is validateItems for a list whose items have unique keys.
func validateUniqueItems[T any, K comparable](
	p *field.Path, items []T, most int, key func(*T) K, check func(*field.Path, *T) field.ErrorList,
) field.ErrorList {
	errs := validateItems(p, items, most, check)
	if len(items) > most {
		return errs
	}
	seen := sets.New[K]()
	for i := range items {
		k := key(&items[i])
		if seen.Has(k) {
			errs = append(errs, field.Duplicate(p.Index(i), k))
		}
		seen.Insert(k)
	}
	return errs
}

// identity returns the key of an item that is its own key.
func identity(s *string) string { return *s }

// validateEntries checks the keys and values of a map, in the order of the
// keys, unless there are more than most. Errors of keys have the path of the
// map. Keys that are longer than shown bytes are shortened in paths.
func validateEntries[K ~string, V any](
	p *field.Path, m map[K]V, most, shown int, checkKey func(*field.Path, string) field.ErrorList, check func(*field.Path, V) field.ErrorList,
) field.ErrorList {
	if len(m) > most {
		return field.ErrorList{field.TooMany(p, len(m), most)}
	}
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(m)) {
		errs = append(errs, checkKey(p, string(key))...)
		errs = append(errs, check(p.Key(shorten(string(key), shown)), m[key])...)
	}
	return errs
}

// shorten cuts out the middle of a string that is longer than most bytes.
func shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	const ellipsis = "..."
	left := most - len(ellipsis)
	return s[:(left+1)/2] + ellipsis + s[len(s)-left/2:]
}
