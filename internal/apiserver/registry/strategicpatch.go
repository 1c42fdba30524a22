package registry

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// strategicMerge applies a strategic merge patch. The library panics on some
// that make no sense, such as a list or map in the place of a merge key.
func strategicMerge(original, changes map[string]any, sample runtime.Object) (merged map[string]any, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			merged, err = nil, fmt.Errorf("the patch cannot be applied: %v", reason)
		}
	}()
	return strategicpatch.StrategicMergeMapPatch(original, changes, sample)
}
