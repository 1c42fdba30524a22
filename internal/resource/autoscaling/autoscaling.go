// Package autoscaling defines the resources of the group autoscaling.
package autoscaling

import "github.com/coracle-io/coracle/internal/resource"

// Resources lists the group's resources.
func Resources() []*resource.Resource {
	return []*resource.Resource{HorizontalPodAutoscalers()}
}
