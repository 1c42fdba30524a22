package registry

import (
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// maxCompared bounds the pairs of elements that a strategic merge compares.
// The library sorts each list and searches it once for each element, so that
// a list of 20,000 elements takes ten seconds, however short the patch.
const maxCompared = 25_000_000

func errLongLists() error {
	return apierrors.NewRequestEntityTooLargeError("lists of more than about 5000 elements cannot be merged, use a merge patch or apply")
}

// exceedsMergeLimit reports whether a strategic merge patch compares more than
// maxCompared pairs. sample determines which lists are merged rather than
// replaced.
func exceedsMergeLimit(object, patch map[string]any, sample any) bool {
	inPatch := elements(patch)
	if inPatch == 0 || inPatch+elements(object) < smallMerge {
		return false
	}
	types, err := strategicpatch.NewPatchMetaFromStruct(sample)
	if err != nil {
		return false // the merge reports the error
	}
	o := &outline{}
	o.add(object, false)
	return o.compared(patch, types) > maxCompared
}

// smallMerge is a number of list elements that is always merged: smallMerge²
// pairs for each of smallMerge lists stay below maxCompared.
const smallMerge = 290

// elements returns the number of elements of all lists in a value.
func elements(value any) (n int) {
	switch v := value.(type) {
	case map[string]any:
		for _, inner := range v {
			n += elements(inner)
		}
	case []any:
		n = len(v)
		for _, inner := range v {
			n += elements(inner)
		}
	}
	return n
}

// outline describes what an object has at one path, over all elements of the
// lists on that path: the length of the longest list, and the outlines of
// fields.
type outline struct {
	length int
	fields map[string]*outline
}

// add adds a value to the outline. With sum, it adds the lengths of lists
// instead of taking the longest.
func (o *outline) add(value any, sum bool) {
	switch v := value.(type) {
	case map[string]any:
		if o.fields == nil {
			o.fields = make(map[string]*outline, len(v))
		}
		for name, inner := range v {
			below := o.fields[name]
			if below == nil {
				below = &outline{}
				o.fields[name] = below
			}
			below.add(inner, sum)
		}
	case []any:
		if sum {
			o.length += len(v)
		} else {
			o.length = max(o.length, len(v))
		}
		for _, inner := range v {
			o.add(inner, sum)
		}
	}
}

// compared returns an upper bound of the pairs of elements that a patch
// compares.
func (o *outline) compared(patch map[string]any, types strategicpatch.LookupPatchMeta) (pairs int) {
	for name, value := range patch {
		order := 0 // the length of a $setElementOrder directive
		if strings.HasPrefix(name, "$") {
			list, _ := value.([]any)
			order = len(list)
			_, name, _ = strings.Cut(name, "/")
			value = patch[name]
		}
		below := o.fields[name]
		switch v := value.(type) {
		case map[string]any:
			inner, meta, err := types.LookupPatchMetadataForStruct(name)
			if err == nil && below != nil && !slices.Contains(meta.GetPatchStrategies(), "replace") {
				pairs += below.compared(v, inner)
			}
		case []any:
			pairs += below.comparedList(name, v, order, types)
		case nil:
			if order > 0 {
				pairs += below.comparedList(name, nil, order, types)
			}
		}
	}
	return pairs
}

// comparedList is compared for one list. o is nil if the object has none.
func (o *outline) comparedList(name string, patch []any, order int, types strategicpatch.LookupPatchMeta) (pairs int) {
	if o == nil {
		return (len(patch) + order) * order // without elements in the object, only the order is compared with itself and the patch
	}
	inner, meta, err := types.LookupPatchMetadataForSlice(name)
	if err != nil || order == 0 && !slices.Contains(meta.GetPatchStrategies(), "merge") {
		return 0
	}
	if repeats(patch, meta.GetPatchMergeKey()) {
		for _, element := range patch {
			o.add(element, true) // an element is merged with the result of the earlier ones
		}
	}
	length := o.length + len(patch) + order
	pairs = length * length
	for _, element := range patch {
		if fields, ok := element.(map[string]any); ok {
			pairs += o.compared(fields, inner)
		}
	}
	return pairs
}

// repeats reports whether two elements of a list have the same merge key, so
// that they are merged with each other.
func repeats(list []any, key string) bool {
	seen := make(map[string]bool, len(list))
	for _, element := range list {
		fields, ok := element.(map[string]any)
		if !ok {
			continue
		}
		name := fmt.Sprint(fields[key])
		if seen[name] {
			return true
		}
		seen[name] = true
	}
	return false
}
