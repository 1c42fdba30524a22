package apiserver

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxCauses and maxCauseBytes bound what is told of the faults of one object.
// A body of 3 MiB has room for hundreds of thousands; putting them into one
// message takes time with the square of their number, and each may repeat a
// large value.
const (
	maxCauses     = 1000
	maxCauseBytes = 4 << 20
)

// errInvalid says all that is wrong with an object, as far as it is told.
func errInvalid(kind schema.GroupKind, name string, faults field.ErrorList) error {
	told, bytes := 0, 0
	for told < len(faults) && told < maxCauses && (told == 0 || bytes < maxCauseBytes) {
		bytes += len(faults[told].Error())
		told++
	}
	err := apierrors.NewInvalid(kind, name, faults[:told])
	if told < len(faults) {
		err.ErrStatus.Message += fmt.Sprintf(" and %d more", len(faults)-told)
	}
	return err
}

// maxCompared bounds the pairs of elements that the merging of lists compares:
// it sorts each list anew, and looks through all of it for the place of each
// element. A list of 20,000 takes ten seconds, however short the patch.
const maxCompared = 25_000_000

func errLongLists() error {
	return apierrors.NewRequestEntityTooLargeError("lists of more than about 5000 elements cannot be merged, use a merge patch or apply")
}

// mergesTooMuch says that a strategic merge patch is for lists that are too
// long to be merged.
func mergesTooMuch(object, patch map[string]any) bool { return compared(object, patch) > maxCompared }

// compared is how many pairs of elements are compared at most.
func compared(object, patch any) (pairs int) {
	switch p := patch.(type) {
	case map[string]any:
		o, _ := object.(map[string]any)
		for name, inner := range p {
			pairs += compared(o[name], inner)
		}
	case []any:
		o, _ := object.([]any)
		if len(p) == 0 {
			return 0
		}
		pairs = (len(o) + len(p)) * (len(o) + len(p))
		var longest int
		for _, inner := range o {
			longest = max(longest, longestWithin(inner))
		}
		for _, inner := range p {
			pairs += comparedWith(longest, inner)
		}
	}
	return pairs
}

// comparedWith is compared for an object whose lists have so many elements.
func comparedWith(longest int, patch any) (pairs int) {
	switch p := patch.(type) {
	case map[string]any:
		for _, inner := range p {
			pairs += comparedWith(longest, inner)
		}
	case []any:
		pairs = (longest + len(p)) * (longest + len(p))
		for _, inner := range p {
			pairs += comparedWith(longest, inner)
		}
	}
	return pairs
}

// longestWithin is the length of the longest list in a value.
func longestWithin(value any) (longest int) {
	switch v := value.(type) {
	case map[string]any:
		for _, inner := range v {
			longest = max(longest, longestWithin(inner))
		}
	case []any:
		longest = len(v)
		for _, inner := range v {
			longest = max(longest, longestWithin(inner))
		}
	}
	return longest
}
