package eviction

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/kubelet/cgroup"
	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	"github.com/coracle-io/coracle/internal/podquery"
)

// Sources provide the resource usage of pods.
type Sources struct {
	Runtime internalapi.RuntimeService
	Files   files.FS
	Volumes interface {
		PodDir(uid types.UID) string
		Directory(uid types.UID, vol *v1.Volume) string
	}
	CGroups interface {
		Usage(pod *v1.Pod) (cgroup.Usage, error)
	}
}

// usage is the resource usage of pods at one moment.
type usage struct {
	sources    *Sources
	counter    *counter
	podLogsDir string
	stats      map[types.UID][]*runtimeapi.ContainerStats
	apart      bool // writable layers are not on the node's file system
}

// usage reads the statistics of all containers.
func (m *Manager) usage(ctx context.Context) *usage {
	stats, err := cri.Stats(ctx, m.config.Sources.Runtime)
	if err != nil {
		klog.FromContext(ctx).Error(err, "The containers' statistics cannot be read")
	}
	return &usage{sources: &m.config.Sources, counter: m.counter, podLogsDir: m.config.Configuration.PodLogsDir, stats: stats}
}

// disk returns the disk usage of a pod. A directory that cannot be counted
// completely counts with the part that was counted. After some time of counting, and
// again after that, disk asks stop whether that is enough: its error is why what is
// left is not counted.
func (u *usage) disk(ctx context.Context, pod *v1.Pod, where area, stop func(*diskUsage) error) *diskUsage {
	d := &diskUsage{Containers: map[string]int64{}, Layers: map[string]int64{}, Volumes: map[string]int64{}, Pages: map[string]int64{}, Apart: u.apart}
	if where.layers {
		for _, s := range u.stats[pod.UID] {
			name, layer := s.GetAttributes().GetMetadata().GetName(), s.GetWritableLayer()
			d.Layers[name] += int64(layer.GetUsedBytes().GetValue())
			d.Inodes += int64(layer.GetInodesUsed().GetValue())
		}
		maps.Copy(d.Containers, d.Layers)
	}
	if !where.node {
		return d
	}
	logs := spec.PodLogDirectory(u.podLogsDir, pod.Namespace, pod.Name, string(pod.UID))
	dir := u.sources.Volumes.PodDir(pod.UID)
	onDisk := func(path string) int64 {
		tree := u.count(ctx, d, pod.UID, path)
		d.Inodes += tree.inodes
		return tree.bytes
	}
	d.Hosts = onDisk(filepath.Join(dir, "etc-hosts"))
	for c := range podquery.AllContainers(&pod.Spec) {
		d.Containers[c.Name] += onDisk(filepath.Join(logs, c.Name)) + onDisk(filepath.Join(dir, "containers", c.Name))
		if d.enough(stop) {
			return d
		}
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		switch {
		case podquery.IsOnDisk(v):
			d.Volumes[v.Name] = onDisk(u.sources.Volumes.Directory(pod.UID, v))
		case v.EmptyDir == nil || v.EmptyDir.Medium == v1.StorageMediumMemory: // the kernel bounds it
			continue
		default:
			d.Pages[v.Name] = u.count(ctx, d, pod.UID, u.sources.Volumes.Directory(pod.UID, v)).bytes
		}
		if d.enough(stop) {
			return d
		}
	}
	return d
}

// count counts a tree, and records in d how long that took and if there may be more.
func (u *usage) count(ctx context.Context, d *diskUsage, uid types.UID, path string) count {
	tree := u.counter.count(ctx, uid, path, countAge)
	d.took += tree.took
	if tree.err != nil {
		d.Uncounted = tree.err
	}
	return tree
}

// askAfter is the time of counting after which disk asks whether to go on.
const askAfter = 100 * time.Millisecond

// enough asks stop from time to time, and reports whether to count no more.
func (d *diskUsage) enough(stop func(*diskUsage) error) bool {
	if d.took-d.asked < askAfter {
		return false
	}
	d.asked = d.took
	err := stop(d)
	if err != nil {
		d.Uncounted = err
	}
	return err != nil
}

// rankTime bounds how long the files of one pod are counted while disk is short.
const rankTime = 15 * time.Second

// tooLong is an error once a pod's files were counted for rankTime.
func tooLong(d *diskUsage) error {
	if d.took >= rankTime {
		return fmt.Errorf("counting the files of the pod takes longer than %v", rankTime)
	}
	return nil
}

// candidate returns the usage of the pod of a resource, of disks in an area.
func (u *usage) candidate(ctx context.Context, pod *v1.Pod, name v1.ResourceName, where area) candidate {
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
		disk := u.disk(ctx, pod, where, tooLong)
		c.Used, c.Uncounted = disk.Inodes, disk.Uncounted
	default:
		disk := u.disk(ctx, pod, where, tooLong)
		c.Used, c.Containers, c.Uncounted = disk.total(), disk.Containers, disk.Uncounted
	}
	return c
}
