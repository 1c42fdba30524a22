package kubelet

import (
	"context"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/coracle-io/coracle/internal/kubelet/evict"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
)

// uses is what pods use of the node at one moment.
type uses struct {
	k     *Kubelet
	stats map[string][]*runtimeapi.ContainerStats // by the pod's uid
}

// uses asks the runtime once for what all containers use.
func (k *Kubelet) uses(ctx context.Context) *uses {
	u := &uses{k: k, stats: map[string][]*runtimeapi.ContainerStats{}}
	list, err := k.runtime.ListContainerStats(ctx, nil)
	if err != nil {
		klog.FromContext(ctx).Error(err, "The containers' statistics cannot be read")
	}
	for _, s := range list {
		uid := s.GetAttributes().GetLabels()[kubelettypes.KubernetesPodUIDLabel]
		u.stats[uid] = append(u.stats[uid], s)
	}
	return u
}

// disk is what a pod takes up of the node's disk. What cannot be counted to
// its end counts as far as it was.
func (u *uses) disk(pod *v1.Pod) *evict.Disk {
	d := &evict.Disk{Containers: map[string]int64{}, Volumes: map[string]int64{}}
	for _, s := range u.stats[string(pod.UID)] {
		d.Containers[s.GetAttributes().GetMetadata().GetName()] += int64(s.GetWritableLayer().GetUsedBytes().GetValue())
	}
	logs := spec.PodLogDirectory(u.k.config.Configuration.PodLogsDir, pod.Namespace, pod.Name, string(pod.UID))
	for i := range pod.Spec.Containers {
		name := pod.Spec.Containers[i].Name
		d.Containers[name] += u.count(d, filepath.Join(logs, name))
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.EmptyDir == nil || v.EmptyDir.Medium == v1.StorageMediumMemory {
			continue
		}
		d.Volumes[v.Name] = u.count(d, u.k.volumes.EmptyDir(pod.UID, v.Name))
	}
	return d
}

// count returns the bytes of a tree, and notes in d if there may be more.
func (u *uses) count(d *evict.Disk, path string) int64 {
	bytes, _, err := u.k.config.Files.Usage(path)
	if err != nil {
		d.Uncounted = err
	}
	return bytes
}

// candidate is what the pod uses of a resource that is short.
func (u *uses) candidate(pod *v1.Pod, name v1.ResourceName) evict.Candidate {
	c := evict.Candidate{Pod: pod}
	switch name {
	case v1.ResourceMemory:
		if usage, err := u.k.cgroups.Usage(pod); err == nil {
			c.Used = int64(usage.WorkingSetBytes)
		}
		c.Containers = map[string]int64{}
		for _, s := range u.stats[string(pod.UID)] {
			c.Containers[s.GetAttributes().GetMetadata().GetName()] = int64(s.GetMemory().GetWorkingSetBytes().GetValue())
		}
	case evict.PIDs:
		if usage, err := u.k.cgroups.Usage(pod); err == nil {
			c.Used = int64(usage.Processes)
		}
	case evict.Inodes:
		_, c.Used, c.Uncounted = u.k.config.Files.Usage(u.k.volumes.PodDir(pod.UID))
		for _, s := range u.stats[string(pod.UID)] {
			c.Used += int64(s.GetWritableLayer().GetInodesUsed().GetValue())
		}
	default:
		disk := u.disk(pod)
		c.Used, c.Containers, c.Uncounted = disk.Total(), disk.Containers, disk.Uncounted
	}
	return c
}
