package eviction

import (
	"fmt"
	"iter"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/coracle-io/coracle/internal/amount"
	"github.com/coracle-io/coracle/internal/podquery"
)

// diskUsage is the disk usage of a pod in bytes.
type diskUsage struct {
	Containers map[string]int64 // writable layer, logs and termination messages, by container
	Layers     map[string]int64 // the writable layers of them
	Volumes    map[string]int64 // emptyDir volumes on the disk and configMap volumes, by volume
	Pages      map[string]int64 // emptyDir volumes of huge pages, which are not on the disk
	Hosts      int64            // the pod's /etc/hosts, to which each container may write
	Inodes     int64            // of all that is on the disk
	Uncounted  error            // why the pod may use more; nil if it does not
	// Apart says that writable layers are not on the node's file system. As in upstream,
	// limits of single containers do not count them then, and that of the pod does.
	Apart bool

	took, asked time.Duration // of counting, and when disk last asked whether to go on
}

// total returns the sum of what is on the disk.
func (d *diskUsage) total() int64 {
	sum := d.Hosts
	for _, n := range d.Containers {
		sum += n
	}
	for _, n := range d.Volumes {
		sum += n
	}
	return sum
}

// limited reports whether the pod has a limit of its disk usage.
func limited(pod *v1.Pod) bool {
	limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
	if _, ok := limits[v1.ResourceEphemeralStorage]; ok {
		return true
	}
	return slices.ContainsFunc(pod.Spec.Volumes, func(v v1.Volume) bool {
		return v.EmptyDir != nil && v.EmptyDir.SizeLimit != nil && !v.EmptyDir.SizeLimit.IsZero()
	})
}

// exceeds returns the signal and the status message of a pod that exceeds a
// limit of its disk usage, "" if it exceeds none.
func exceeds(pod *v1.Pod, use *diskUsage) (signal, message string) {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.EmptyDir == nil || v.EmptyDir.SizeLimit == nil || v.EmptyDir.SizeLimit.IsZero() {
			continue
		}
		if use.Volumes[v.Name]+use.Pages[v.Name] > amount.Value(*v.EmptyDir.SizeLimit) {
			return "emptydirfs.limit", fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, v.EmptyDir.SizeLimit.String())
		}
	}
	limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
	if limit, ok := limits[v1.ResourceEphemeralStorage]; ok && use.total() > amount.Value(limit) {
		return "ephemeralpodfs.limit", fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", limit.String())
	}
	for c := range longRunning(pod) {
		limit, ok := c.Resources.Limits[v1.ResourceEphemeralStorage]
		if !ok || limit.IsZero() { // 0 limits the pod as a whole alone
			continue
		}
		used := use.Containers[c.Name]
		if use.Apart {
			used -= use.Layers[c.Name]
		}
		if used > amount.Value(limit) {
			return "ephemeralcontainerfs.limit", fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", c.Name, limit.String())
		}
	}
	return "", ""
}

// longRunning returns the sidecars and the regular containers of a pod.
func longRunning(pod *v1.Pod) iter.Seq[*v1.Container] {
	return func(yield func(*v1.Container) bool) {
		for i := range pod.Spec.InitContainers {
			if c := &pod.Spec.InitContainers[i]; podquery.IsSidecar(c) && !yield(c) {
				return
			}
		}
		for i := range pod.Spec.Containers {
			if !yield(&pod.Spec.Containers[i]) {
				return
			}
		}
	}
}

// The annotations of the event about an eviction.
const (
	offendingContainers      = "offending_containers"
	offendingContainersUsage = "offending_containers_usage"
	offendingPod             = "offending_pod"
	offendingPodUsage        = "offending_pod_usage"
	starvedResource          = "starved_resource"
)
