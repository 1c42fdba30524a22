// Package apps defines the resources of the group apps.
package apps

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource"
)

// Resources lists the group's resources.
func Resources() []*resource.Resource {
	return resource.InGroup(resource.Priorities{Group: 17800},
		ControllerRevisions(),
		DaemonSets(),
		Deployments(),
		ReplicaSets(),
		StatefulSets(),
	)
}

// selectorString returns a selector in the string form of a Scale's status, or
// "" if it is invalid.
func selectorString(s *metav1.LabelSelector) string {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return ""
	}
	return selector.String()
}
