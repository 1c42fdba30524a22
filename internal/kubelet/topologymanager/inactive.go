package topologymanager

import (
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Inactive returns those pods, for example of the pods that have devices, that can
// have no running container any more. It calls active once it has the pods: a pod
// that is admitted between the two calls keeps its resources.
func Inactive(pods []types.UID, active func() []*v1.Pod) []types.UID {
	if len(pods) == 0 {
		return nil
	}
	gone := sets.New(pods...)
	for _, pod := range active() {
		gone.Delete(pod.UID)
	}
	return sets.List(gone)
}

// ReleaseInactive calls release for each pod that holds something and can have no
// running container any more. mu guards held, and is held while release runs.
func ReleaseInactive[V any](mu sync.Locker, held map[types.UID]V, active func() []*v1.Pod, release func(types.UID)) {
	mu.Lock()
	pods := slices.Collect(maps.Keys(held))
	mu.Unlock()
	inactive := Inactive(pods, active)
	mu.Lock()
	defer mu.Unlock()
	for _, uid := range inactive {
		release(uid)
	}
}
