package source

import v1 "k8s.io/api/core/v1"

// The priority that says what holds for all static pods: the kubelet does not evict
// them. The API server keeps the class with this value.
const (
	nodeCritical      = 2000001000
	nodeCriticalClass = "system-node-critical"
)

// priorityWarning returns why the priority of a static pod may not do what its author
// wants, "" if it does. The messages are upstream's.
func priorityWarning(spec *v1.PodSpec) string {
	class := spec.PriorityClassName
	switch {
	case spec.Priority == nil && class == "":
		return ""
	case spec.Priority == nil:
		return "Static Pod has non-nil PriorityClassName and nil Priority. Kubelet will not make use of the priority. Mirror pod creation may fail."
	case class == "":
		return "Static Pod has Priority set without PriorityClassName. Mirror Pod creation may fail if the default priority class doesn't match the given priority"
	case *spec.Priority != nodeCritical || class != nodeCriticalClass:
		return "Static Pod has non-standard values for Priority and PriorityClassName. Mirror Pod may be attempted to be evicted from the node ineffectively"
	}
	return ""
}
