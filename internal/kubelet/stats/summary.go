// Package stats tells what the node and its pods use, as /stats/summary and
// /metrics/cadvisor show it. It stands for upstream's stats provider and cAdvisor.
package stats

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/coracle-io/coracle/internal/kubelet/cgroup"
	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/node"
	"github.com/coracle-io/coracle/internal/kubelet/pod"
)

func pointer[T any](v T) *T { return &v }

// Provider reads what the node and its pods use.
type Provider struct {
	NodeName string
	Started  time.Time // when the kubelet began
	Pods     func() []pod.Observed
	Runtime  internalapi.RuntimeService
	Machine  node.Machine
	Files    files.FS
	Volumes  interface {
		PodDir(uid types.UID) string
		EmptyDir(uid types.UID, volume string) string
	}
	CGroups *cgroup.Pods

	mu       sync.Mutex // guards what follows
	cpuTotal uint64     // nanoseconds of the node at cpuTime
	cpuTime  time.Time
}

// Summary is the answer to /stats/summary, from the runtime's statistics and
// the control groups.
func (p *Provider) Summary(ctx context.Context, onlyCPUAndMemory bool) (*statsapi.Summary, error) {
	byPod, err := cri.Stats(ctx, p.Runtime)
	if err != nil {
		return nil, err
	}
	now := metav1.Now()
	out := &statsapi.Summary{Node: p.nodeStats(now, onlyCPUAndMemory), Pods: []statsapi.PodStats{}}
	for _, pod := range p.Pods() {
		observed := pod.Runtime
		if len(observed.Running()) == 0 {
			continue
		}
		st := statsapi.PodStats{PodRef: statsapi.PodReference{Name: pod.Name, Namespace: pod.Namespace, UID: string(pod.UID)}, Containers: []statsapi.ContainerStats{}}
		if s := observed.ReadySandbox(); s != nil {
			st.StartTime = metav1.NewTime(s.CreatedAt)
		}
		var cores uint64
		for _, s := range byPod[pod.UID] {
			running := observed.FindID(s.GetAttributes().GetId())
			if running == nil || running.State != cri.Running {
				continue
			}
			c := containerStats(s)
			c.StartTime = metav1.NewTime(running.StartedAt)
			if c.CPU != nil && c.CPU.UsageNanoCores != nil {
				cores += *c.CPU.UsageNanoCores
			}
			st.Containers = append(st.Containers, c)
		}
		if usage, err := p.CGroups.Usage(pod.Pod); err == nil {
			st.CPU, st.Memory = fromGroup(usage, now)
			st.CPU.UsageNanoCores = &cores
			st.ProcessStats = &statsapi.ProcessStats{ProcessCount: pointer(usage.Processes)}
		}
		if !onlyCPUAndMemory {
			p.podDisk(&st, pod.Pod, now)
		}
		out.Pods = append(out.Pods, st)
	}
	return out, nil
}

func containerStats(s *runtimeapi.ContainerStats) statsapi.ContainerStats {
	c := statsapi.ContainerStats{Name: s.GetAttributes().GetMetadata().GetName(), StartTime: metav1.Now()}
	value := func(v *runtimeapi.UInt64Value) *uint64 {
		if v == nil {
			return nil
		}
		return pointer(v.GetValue())
	}
	if cpu := s.GetCpu(); cpu != nil {
		c.CPU = &statsapi.CPUStats{Time: metav1.NewTime(time.Unix(0, cpu.GetTimestamp())), UsageNanoCores: value(cpu.GetUsageNanoCores()), UsageCoreNanoSeconds: value(cpu.GetUsageCoreNanoSeconds())}
	}
	if m := s.GetMemory(); m != nil {
		c.Memory = &statsapi.MemoryStats{
			Time: metav1.NewTime(time.Unix(0, m.GetTimestamp())), WorkingSetBytes: value(m.GetWorkingSetBytes()), AvailableBytes: value(m.GetAvailableBytes()),
			UsageBytes: value(m.GetUsageBytes()), RSSBytes: value(m.GetRssBytes()), PageFaults: value(m.GetPageFaults()), MajorPageFaults: value(m.GetMajorPageFaults()),
		}
	}
	if fs := s.GetWritableLayer(); fs != nil {
		c.Rootfs = &statsapi.FsStats{Time: metav1.NewTime(time.Unix(0, fs.GetTimestamp())), UsedBytes: value(fs.GetUsedBytes()), InodesUsed: value(fs.GetInodesUsed())}
	}
	return c
}

func fromGroup(u cgroup.Usage, now metav1.Time) (*statsapi.CPUStats, *statsapi.MemoryStats) {
	return &statsapi.CPUStats{Time: now, UsageCoreNanoSeconds: pointer(u.CPUNanoseconds)},
		&statsapi.MemoryStats{Time: now, UsageBytes: pointer(u.MemoryBytes), WorkingSetBytes: pointer(u.WorkingSetBytes), RSSBytes: pointer(u.RSSBytes),
			PageFaults: pointer(u.PageFaults), MajorPageFaults: pointer(u.MajorPageFaults)}
}

func (p *Provider) nodeStats(now metav1.Time, onlyCPUAndMemory bool) statsapi.NodeStats {
	n := statsapi.NodeStats{NodeName: p.NodeName, StartTime: metav1.NewTime(p.Started)}
	if usage, err := p.CGroups.Groups.Usage("/"); err == nil {
		n.CPU, n.Memory = fromGroup(usage, now)
		n.CPU.UsageNanoCores = p.nodeCores(usage.CPUNanoseconds)
	}
	free, err := p.Machine.Free()
	if err != nil {
		return n
	}
	if n.Memory != nil {
		n.Memory.AvailableBytes = pointer(uint64(max(free.MemoryBytes, 0)))
	}
	if onlyCPUAndMemory || free.DiskTotal == 0 {
		return n
	}
	n.Fs = &statsapi.FsStats{
		Time: now, AvailableBytes: pointer(uint64(free.DiskBytes)), CapacityBytes: pointer(uint64(free.DiskTotal)), UsedBytes: pointer(uint64(free.DiskTotal - free.DiskBytes)),
		InodesFree: pointer(uint64(free.Inodes)), Inodes: pointer(uint64(free.InodesTotal)), InodesUsed: pointer(uint64(free.InodesTotal - free.Inodes)),
	}
	n.Runtime = &statsapi.RuntimeStats{ImageFs: n.Fs, ContainerFs: n.Fs}
	n.Rlimit = &statsapi.RlimitStats{Time: now, MaxPID: pointer(free.PIDsTotal), NumOfRunningProcesses: pointer(free.PIDsTotal - free.PIDs)}
	return n
}

// nodeCores is the node's use of CPU since it was last asked for.
func (p *Provider) nodeCores(total uint64) *uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	last, at := p.cpuTotal, p.cpuTime
	p.cpuTotal, p.cpuTime = total, now
	if at.IsZero() || total < last || now.Sub(at) <= 0 {
		return pointer(uint64(0))
	}
	return pointer(uint64(float64(total-last) / now.Sub(at).Seconds()))
}

// podDisk adds what the pod's volumes take up.
func (p *Provider) podDisk(st *statsapi.PodStats, pod *v1.Pod, now metav1.Time) {
	bytes, inodes, err := p.Files.Usage(p.Volumes.PodDir(pod.UID))
	if err == nil {
		st.EphemeralStorage = &statsapi.FsStats{Time: now, UsedBytes: pointer(uint64(bytes)), InodesUsed: pointer(uint64(inodes))}
	}
	for i := range pod.Spec.Volumes {
		vol := &pod.Spec.Volumes[i]
		if vol.EmptyDir == nil {
			continue
		}
		if bytes, inodes, err := p.Files.Usage(p.Volumes.EmptyDir(pod.UID, vol.Name)); err == nil {
			st.VolumeStats = append(st.VolumeStats, statsapi.VolumeStats{Name: vol.Name, FsStats: statsapi.FsStats{Time: now, UsedBytes: pointer(uint64(bytes)), InodesUsed: pointer(uint64(inodes))}})
		}
	}
}
