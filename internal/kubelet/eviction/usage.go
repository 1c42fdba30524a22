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
	"github.com/coracle-io/coracle/internal/kubelet/node"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	"github.com/coracle-io/coracle/internal/podquery"
)

// Sources provide the resource usage of pods.
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
}

// usage is the resource usage of pods at one moment.
type usage struct {
	sources    *Sources
	podLogsDir string
	stats      map[types.UID][]*runtimeapi.ContainerStats
}

// usage reads the statistics of all containers.
func (m *Manager) usage(ctx context.Context) *usage {
	stats, err := cri.Stats(ctx, m.config.Sources.Runtime)
	if err != nil {
		klog.FromContext(ctx).Error(err, "The containers' statistics cannot be read")
	}
	return &usage{&m.config.Sources, m.config.Configuration.PodLogsDir, stats}
}

// area says which file systems of a node count: its own, and that of the images, which
// has the writable layers of containers. Often that is the same.
type area struct{ node, images bool }

// everywhere counts all files.
func everywhere() area { return area{node: true, images: true} }

// areaOf returns the file systems that count when one is short: both, unless the images
// have a file system of their own.
func areaOf(signal string, f node.Free) area {
	if f.Images.Total == 0 || f.Images.Total == f.DiskTotal && f.Images.InodesTotal == f.InodesTotal {
		return everywhere()
	}
	ofImages := signal == imageFsAvailable || signal == imageFsInodesFree
	return area{node: !ofImages, images: ofImages}
}

// disk returns the disk usage of a pod. A directory that cannot be counted
// completely counts with the part that was counted.
func (u *usage) disk(pod *v1.Pod, where area) *diskUsage {
	d := &diskUsage{Containers: map[string]int64{}, Volumes: map[string]int64{}}
	if where.images {
		for _, s := range u.stats[pod.UID] {
			d.Containers[s.GetAttributes().GetMetadata().GetName()] += int64(s.GetWritableLayer().GetUsedBytes().GetValue())
		}
	}
	if !where.node {
		return d
	}
	logs := spec.PodLogDirectory(u.podLogsDir, pod.Namespace, pod.Name, string(pod.UID))
	dir := u.sources.Volumes.PodDir(pod.UID)
	for c := range podquery.AllContainers(&pod.Spec) {
		d.Containers[c.Name] += u.count(d, filepath.Join(logs, c.Name)) + u.count(d, filepath.Join(dir, "containers", c.Name))
	}
	d.Hosts = u.count(d, filepath.Join(dir, "etc-hosts"))
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.EmptyDir == nil || v.EmptyDir.Medium == v1.StorageMediumMemory {
			continue
		}
		d.Volumes[v.Name] = u.count(d, u.sources.Volumes.EmptyDir(pod.UID, v.Name))
	}
	return d
}

// count returns the bytes of a tree, and records in d if there may be more.
func (u *usage) count(d *diskUsage, path string) int64 {
	bytes, _, err := u.sources.Files.Usage(path)
	if err != nil {
		d.Uncounted = err
	}
	return bytes
}

// candidate returns the usage of the pod of a resource, of disks in an area.
func (u *usage) candidate(pod *v1.Pod, name v1.ResourceName, where area) candidate {
	c := candidate{Pod: pod}
	switch name {
	case v1.ResourceMemory:
		if group, err := u.sources.CGroups.Usage(pod); err == nil {
			c.Used = int64(group.WorkingSetBytes)
		}
		c.Containers = map[string]int64{}
		for _, s := range u.stats[pod.UID] {
			c.Containers[s.GetAttributes().GetMetadata().GetName()] = int64(s.GetMemory().GetWorkingSetBytes().GetValue())
		}
	case pids:
		if group, err := u.sources.CGroups.Usage(pod); err == nil {
			c.Used = int64(group.Processes)
		}
	case inodes:
		if where.node {
			_, c.Used, c.Uncounted = u.sources.Files.Usage(u.sources.Volumes.PodDir(pod.UID))
		}
		for _, s := range u.stats[pod.UID] {
			if where.images {
				c.Used += int64(s.GetWritableLayer().GetInodesUsed().GetValue())
			}
		}
	default:
		disk := u.disk(pod, where)
		c.Used, c.Containers, c.Uncounted = disk.total(), disk.Containers, disk.Uncounted
	}
	return c
}
