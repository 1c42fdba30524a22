// Package cgroup manages the control groups of pods. Each pod has a group below
// the group of its QoS class. The limits of the pod's group apply to all
// containers of the pod. The package corresponds to upstream's container
// manager.
//
//	ROOT/kubepods/podUID                  guaranteed
//	ROOT/kubepods/burstable/podUID
//	ROOT/kubepods/besteffort/podUID
package cgroup

import (
	"cmp"
	"path"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Usage is the resource usage of a group.
type Usage struct {
	CPUNanoseconds  uint64 // since the group was made
	MemoryBytes     uint64
	WorkingSetBytes uint64
	RSSBytes        uint64
	PageFaults      uint64
	MajorPageFaults uint64
	Processes       uint64

	UserNanoseconds, SystemNanoseconds uint64 // of CPUNanoseconds
	CacheBytes, MappedBytes, SwapBytes uint64
	PeakBytes                          uint64 // most memory since the group was made
	MemoryFailures                     uint64 // how often the memory's limit was met

	// How often and how long the group had used up its CPU quota.
	Periods, ThrottledPeriods, ThrottledNanoseconds uint64

	Pressures
}

// Groups are the control groups of the machine. Paths begin at the root of the
// hierarchy.
type Groups interface {
	// Apply creates the group if it is missing and sets its controls. pids is
	// how many processes and threads it may have: -1 is no limit, and 0 leaves
	// the limit unchanged. The group may have no huge pages of the sizes that
	// r.HugepageLimits leaves out, unless it is nil, which leaves all unchanged.
	// r.Unified has no effect with version 1.
	Apply(path string, r *runtimeapi.LinuxContainerResources, pids int64) error
	// Limit sets the controls that r has, and pids as Apply does, of a group that
	// belongs to others. It leaves the controls that r does not have unchanged.
	Limit(path string, r *runtimeapi.LinuxContainerResources, pids int64) error
	// Remove removes the group and its descendants. A missing group is not an
	// error.
	Remove(path string) error
	// Kill kills the processes in the group and its descendants with SIGKILL. A
	// missing group is not an error.
	Kill(path string) error
	// Below returns the names of the groups directly below a group.
	Below(path string) ([]string, error)
	// Usage reads a group's consumption.
	Usage(path string) (Usage, error)
	// Pressures reads a part of the usage alone.
	Pressures(path string) Pressures
	// Disks reads what a group read and wrote, by disk. Disks that it did not use
	// are left out.
	Disks(path string) []Disk
	// Packets reads the packets in the network of the group's own processes, by
	// interface. It returns nil if the group has no process.
	Packets(path string) map[string]Packets
}

// kubePods is the name of the group of all pods.
const kubePods = "kubepods"

// Parent returns the group of a QoS class.
func Parent(root string, class v1.PodQOSClass) string {
	switch class {
	case v1.PodQOSBurstable:
		return path.Join("/", root, kubePods, "burstable")
	case v1.PodQOSBestEffort:
		return path.Join("/", root, kubePods, "besteffort")
	}
	return path.Join("/", root, kubePods)
}

// Pod returns the group of a pod.
func Pod(root string, class v1.PodQOSClass, uid types.UID) string {
	return path.Join(Parent(root, class), podPrefix+string(uid))
}

const podPrefix = "pod"

// Memory is control groups in memory, without processes.
type Memory struct {
	mu     sync.Mutex // guards groups
	groups map[string]*runtimeapi.LinuxContainerResources
}

// Apply implements Groups.
func (m *Memory) Apply(path string, r *runtimeapi.LinuxContainerResources, _ int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.groups == nil {
		m.groups = make(map[string]*runtimeapi.LinuxContainerResources)
	}
	m.groups[path] = r
	return nil
}

// Limit implements Groups.
func (m *Memory) Limit(path string, r *runtimeapi.LinuxContainerResources, pids int64) error {
	has := m.Get(path)
	return m.Apply(path, &runtimeapi.LinuxContainerResources{
		CpuShares: cmp.Or(r.GetCpuShares(), has.GetCpuShares()), CpuQuota: cmp.Or(r.GetCpuQuota(), has.GetCpuQuota()),
		CpuPeriod: cmp.Or(r.GetCpuPeriod(), has.GetCpuPeriod()), MemoryLimitInBytes: cmp.Or(r.GetMemoryLimitInBytes(), has.GetMemoryLimitInBytes()),
		Unified: r.GetUnified(),
	}, pids)
}

// Remove implements Groups.
func (m *Memory) Remove(path string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.groups, path)
	return nil
}

// Kill implements Groups.
func (m *Memory) Kill(string) error { return nil }

// Below implements Groups.
func (m *Memory) Below(parent string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for group := range m.groups {
		if path.Dir(group) == parent {
			names = append(names, path.Base(group))
		}
	}
	return names, nil
}

// Usage implements Groups.
func (m *Memory) Usage(string) (Usage, error) { return Usage{}, nil }

// Pressures implements Groups.
func (m *Memory) Pressures(string) Pressures { return Pressures{} }

// Disks implements Groups.
func (m *Memory) Disks(string) []Disk { return nil }

// Packets implements Groups.
func (m *Memory) Packets(string) map[string]Packets { return nil }

// Get returns the controls of a group, nil for a missing one.
func (m *Memory) Get(path string) *runtimeapi.LinuxContainerResources {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.groups[path]
}
