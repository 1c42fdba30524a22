package admission

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// extendedResource says whether a resource is one that Kubernetes itself does
// not know, such as a device plugin's.
func extendedResource(name corev1.ResourceName) bool {
	s := string(name)
	return strings.Contains(s, "/") && !strings.Contains(s, corev1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(s, corev1.DefaultResourceRequestsPrefix)
}
