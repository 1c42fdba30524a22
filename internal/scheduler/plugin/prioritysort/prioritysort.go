// Package prioritysort orders pods by priority, then by when they came.
package prioritysort

import (
	"context"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Name is the plugin's name in configurations.
const Name = "PrioritySort"

// Plugin implements QueueSort.
type Plugin struct{}

// Name implements framework.Plugin.
func (Plugin) Name() string { return Name }

// Less implements framework.QueueSortPlugin.
func (Plugin) Less(a, b framework.QueuedPod) bool {
	if a.Priority != b.Priority {
		return a.Priority > b.Priority
	}
	return a.Timestamp.Before(b.Timestamp)
}

// EventsToRegister implements framework.EnqueueExtensions: it rejects no pod.
func (Plugin) EventsToRegister(context.Context) ([]framework.ClusterEventWithHint, error) {
	return nil, nil
}
