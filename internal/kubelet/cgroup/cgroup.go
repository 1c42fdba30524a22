// Package cgroup keeps the control groups of pods: one below the group of
// its service class, whose limits all containers of the pod share. It stands
// for upstream's container manager.
//
//	ROOT/kubepods/podUID                  guaranteed
//	ROOT/kubepods/burstable/podUID
//	ROOT/kubepods/besteffort/podUID
package cgroup

import (
	"path"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Usage is what the processes of a group use now.
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
}

// Groups is the machine's control groups. Paths begin at the hierarchy's root.
type Groups interface {
	// Apply makes the group if it is missing and sets its controls. pids 0
	// leaves the number of processes alone.
	Apply(path string, r *runtimeapi.LinuxContainerResources, pids int64) error
	// Remove deletes the group and those below it. A missing one is no error.
	Remove(path string) error
	// Usage reads a group's consumption.
	Usage(path string) (Usage, error)
}

// KubePods is the name of the group of all pods.
const KubePods = "kubepods"

// Parent is the group of a service class.
func Parent(root string, class v1.PodQOSClass) string {
	switch class {
	case v1.PodQOSBurstable:
		return path.Join("/", root, KubePods, "burstable")
	case v1.PodQOSBestEffort:
		return path.Join("/", root, KubePods, "besteffort")
	}
	return path.Join("/", root, KubePods)
}

// Pod is the group of a pod.
func Pod(root string, class v1.PodQOSClass, uid types.UID) string {
	return path.Join(Parent(root, class), "pod"+string(uid))
}

// Memory remembers what it was told and has no processes.
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

// Remove implements Groups.
func (m *Memory) Remove(path string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.groups, path)
	return nil
}

// Usage implements Groups.
func (m *Memory) Usage(string) (Usage, error) { return Usage{}, nil }

// Get returns the controls of a group, nil for a missing one.
func (m *Memory) Get(path string) *runtimeapi.LinuxContainerResources {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.groups[path]
}
