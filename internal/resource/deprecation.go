package resource

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// deprecationOf returns the deprecation warning that the generated lifecycle
// methods of a type ask for, or "".
func deprecationOf(obj runtime.Object) string {
	deprecated, ok := obj.(interface{ APILifecycleDeprecated() (major, minor int) })
	if !ok {
		return ""
	}
	kind := obj.GetObjectKind().GroupVersionKind()
	major, minor := deprecated.APILifecycleDeprecated()
	warning := fmt.Sprintf("%s %s is deprecated in v%d.%d+", kind.GroupVersion(), kind.Kind, major, minor)
	if removed, ok := obj.(interface{ APILifecycleRemoved() (major, minor int) }); ok {
		major, minor := removed.APILifecycleRemoved()
		warning += fmt.Sprintf(", unavailable in v%d.%d+", major, minor)
	}
	if replaced, ok := obj.(interface {
		APILifecycleReplacement() schema.GroupVersionKind
	}); ok {
		by := replaced.APILifecycleReplacement()
		warning += fmt.Sprintf("; use %s %s", by.GroupVersion(), by.Kind)
	}
	return warning
}
