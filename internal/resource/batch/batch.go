// Package batch defines the resources of the group batch.
package batch

import (
	"github.com/coracle-io/coracle/internal/resource"
)

// Resources lists the group's resources.
func Resources() []*resource.Resource {
	return resource.InGroup(resource.Priorities{Group: 17400}, CronJobs(), Jobs())
}
