package eviction

import (
	"context"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/kubelet/cgroup"
	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
)

// Sources are where a Manager reads what pods use.
type Sources struct {
	Runtime internalapi.RuntimeService
	Files   files.FS
	Volumes interface {
		PodDir(uid types.UID) string
		EmptyDir(uid types.UID, volume string) string
	}
	CGroups interface {
		Usage(pod *v1.Pod) (cgroup.Usage, error)
	}
	PodLogsDir string
}

// usage is what pods use of the node at one moment.
type usage struct {
	*Sources
	stats map[types.UID][]*runtimeapi.ContainerStats
}

// read asks the runtime once for what all containers use.
func (s *Sources) read(ctx context.Context) *usage {
	stats, err := cri.Stats(ctx, s.Runtime)
	if err != nil {
		klog.FromContext(ctx).Error(err, "The containers' statistics cannot be read")
	}
	return &usage{s, stats}
}

// disk is what a pod takes up of the node's disk. What cannot be counted to
// its end counts as far as it was.
func (u *usage) disk(pod *v1.Pod) *Disk {
	d := &Disk{Containers: map[string]int64{}, Volumes: map[string]int64{}}
	for _, s := range u.stats[pod.UID] {
		d.Containers[s.GetAttributes().GetMetadata().GetName()] += int64(s.GetWritableLayer().GetUsedBytes().GetValue())
	}
	logs := spec.PodLogDirectory(u.PodLogsDir, pod.Namespace, pod.Name, string(pod.UID))
	for i := range pod.Spec.Containers {
		name := pod.Spec.Containers[i].Name
		d.Containers[name] += u.count(d, filepath.Join(logs, name))
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.EmptyDir == nil || v.EmptyDir.Medium == v1.StorageMediumMemory {
			continue
		}
		d.Volumes[v.Name] = u.count(d, u.Volumes.EmptyDir(pod.UID, v.Name))
	}
	return d
}

// count returns the bytes of a tree, and notes in d if there may be more.
func (u *usage) count(d *Disk, path string) int64 {
	bytes, _, err := u.Files.Usage(path)
	if err != nil {
		d.Uncounted = err
	}
	return bytes
}

// candidate is what the pod uses of a resource that is short.
func (u *usage) candidate(pod *v1.Pod, name v1.ResourceName) Candidate {
	c := Candidate{Pod: pod}
	switch name {
	case v1.ResourceMemory:
		if group, err := u.CGroups.Usage(pod); err == nil {
			c.Used = int64(group.WorkingSetBytes)
		}
		c.Containers = map[string]int64{}
		for _, s := range u.stats[pod.UID] {
			c.Containers[s.GetAttributes().GetMetadata().GetName()] = int64(s.GetMemory().GetWorkingSetBytes().GetValue())
		}
	case PIDs:
		if group, err := u.CGroups.Usage(pod); err == nil {
			c.Used = int64(group.Processes)
		}
	case Inodes:
		_, c.Used, c.Uncounted = u.Files.Usage(u.Volumes.PodDir(pod.UID))
		for _, s := range u.stats[pod.UID] {
			c.Used += int64(s.GetWritableLayer().GetInodesUsed().GetValue())
		}
	default:
		disk := u.disk(pod)
		c.Used, c.Containers, c.Uncounted = disk.Total(), disk.Containers, disk.Uncounted
	}
	return c
}
