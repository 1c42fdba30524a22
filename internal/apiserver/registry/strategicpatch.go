package registry

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// strategicMerge applies a strategic merge patch. The library panics on some
// malformed patches, such as those with a list or map as a merge key.
// strategicMerge returns an error for them.
func strategicMerge(original, changes map[string]any, sample runtime.Object) (merged map[string]any, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			merged, err = nil, fmt.Errorf("the patch cannot be applied: %v", reason)
		}
	}()
	return strategicpatch.StrategicMergeMapPatch(original, changes, sample)
}
