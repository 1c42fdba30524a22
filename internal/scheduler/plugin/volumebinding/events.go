package volumebinding

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// EventsToRegister implements framework.EnqueueExtensions: the pod's claim
// changes, a volume or a node does, a node leaves volumes to CSI drivers, a class or a driver allows more, a storage
// has more room, or another pod gives up what was assumed for it.
func (p *plugin) EventsToRegister(context.Context) ([]framework.ClusterEventWithHint, error) {
	return []framework.ClusterEventWithHint{
		framework.On(framework.StorageClass, framework.Add|framework.Update, func(_ *framework.PodInfo, old, class *storagev1.StorageClass) framework.QueueingHint {
			return framework.QueueIf(old == nil || !equality.Semantic.DeepEqual(old.AllowedTopologies, class.AllowedTopologies))
		}),
		framework.On(framework.PersistentVolumeClaim, framework.Add|framework.Update, func(pod *framework.PodInfo, _, claim *v1.PersistentVolumeClaim) framework.QueueingHint {
			return framework.QueueIf(slices.Contains(pod.Claims, claim.Namespace+"/"+claim.Name))
		}),
		{Event: framework.ClusterEvent{Resource: framework.PersistentVolume, Action: framework.Add | framework.Update}},
		{Event: framework.ClusterEvent{Resource: framework.Node, Action: framework.Add | framework.UpdateNodeLabel}},
		framework.On(framework.CSINode, framework.Add|framework.Update, func(_ *framework.PodInfo, old, csiNode *storagev1.CSINode) framework.QueueingHint {
			const migrated = v1.MigratedPluginsAnnotationKey
			return framework.QueueIf(old == nil && csiNode.Annotations[migrated] != "" || old != nil && old.Annotations[migrated] != csiNode.Annotations[migrated])
		}),
		framework.On(framework.CSIDriver, framework.Update|framework.Delete, func(_ *framework.PodInfo, old, driver *storagev1.CSIDriver) framework.QueueingHint {
			return framework.QueueIf(publishesCapacity(old) && (driver == nil || !publishesCapacity(driver)))
		}),
		framework.On(framework.CSIStorageCapacity, framework.Add|framework.Update, func(_ *framework.PodInfo, old, capacity *storagev1.CSIStorageCapacity) framework.QueueingHint {
			return framework.QueueIf(old == nil || room(capacity) > room(old))
		}),
		framework.On(framework.AssignedPod, framework.Delete, func(_ *framework.PodInfo, gone, _ *v1.Pod) framework.QueueingHint {
			wasAssumed := gone.Spec.NodeName == ""
			return framework.QueueIf(wasAssumed && slices.ContainsFunc(gone.Spec.Volumes, func(v v1.Volume) bool {
				return v.PersistentVolumeClaim != nil || v.Ephemeral != nil
			}))
		}),
	}, nil
}

func publishesCapacity(driver *storagev1.CSIDriver) bool {
	return driver.Spec.StorageCapacity != nil && *driver.Spec.StorageCapacity
}
