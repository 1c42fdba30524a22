// Package autoscaling defines the resources of the group autoscaling.
package autoscaling

import "github.com/coracle-io/coracle/internal/resource"

// Resources lists the group's resources.
func Resources() []*resource.Resource {
	return resource.InGroup(resource.Priorities{Group: 17500, Versions: map[string]int32{"v2": 30}}, HorizontalPodAutoscalers())
}
