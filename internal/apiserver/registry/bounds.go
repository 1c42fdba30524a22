package registry

import (
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// maxCompared bounds the pairs of elements that the merging of lists compares:
// it sorts each list anew, and looks through all of it for the place of each
// element. A list of 20,000 takes ten seconds, however short the patch.
const maxCompared = 25_000_000

func errLongLists() error {
	return apierrors.NewRequestEntityTooLargeError("lists of more than about 5000 elements cannot be merged, use a merge patch or apply")
}

// mergesTooMuch says that a strategic merge patch is for lists that are too
// long to be merged. sample tells which lists are merged, not replaced.
func mergesTooMuch(object, patch map[string]any, sample any) bool {
	inPatch := elements(patch)
	if inPatch == 0 || inPatch+elements(object) < few {
		return false
	}
	types, err := strategicpatch.NewPatchMetaFromStruct(sample)
	if err != nil {
		return false // the merging says what is wrong
	}
	o := &outline{}
	o.add(object, false)
	return o.compared(patch, types) > maxCompared
}

// few is a number of elements of lists that are merged at once, whatever the
// patch: few × few pairs, for each of few that are merged with the same one.
const few = 290

// elements counts those of all lists in a value.
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

// outline is what an object has at one path, seen through all elements of the
// lists on the way: the length of the longest list, and what is below.
type outline struct {
	length int
	fields map[string]*outline
}

// add adds a value; sum adds up the lengths of lists.
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

// compared is how many pairs of elements a patch compares at most.
func (o *outline) compared(patch map[string]any, types strategicpatch.LookupPatchMeta) (pairs int) {
	for name, value := range patch {
		order := 0 // the length of a directive, as $setElementOrder/containers
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

// comparedList is compared for one list; o is nil if the object has none.
func (o *outline) comparedList(name string, patch []any, order int, types strategicpatch.LookupPatchMeta) (pairs int) {
	if o == nil {
		return (len(patch) + order) * order // an order is made of what is there; the rest is taken as it is
	}
	inner, meta, err := types.LookupPatchMetadataForSlice(name)
	if err != nil || order == 0 && !slices.Contains(meta.GetPatchStrategies(), "merge") {
		return 0
	}
	if repeats(patch, meta.GetPatchMergeKey()) {
		for _, element := range patch {
			o.add(element, true) // each is merged with what was made of those before
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

// repeats says that elements of a list may be merged with each other.
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
