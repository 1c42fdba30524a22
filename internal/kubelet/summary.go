package kubelet

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/coracle-io/coracle/internal/kubelet/cgroup"
	"github.com/coracle-io/coracle/internal/kubelet/cri"
)

func pointer[T any](v T) *T { return &v }

// Summary implements server.Backend, from the runtime's statistics and the
// control groups.
func (b backend) Summary(ctx context.Context, onlyCPUAndMemory bool) (*stats.Summary, error) {
	k := b.k
	list, err := k.runtime.ListContainerStats(ctx, nil)
	if err != nil {
		return nil, err
	}
	byPod := map[string][]*runtimeapi.ContainerStats{}
	for _, s := range list {
		uid := s.GetAttributes().GetLabels()[kubelettypes.KubernetesPodUIDLabel]
		byPod[uid] = append(byPod[uid], s)
	}
	now := metav1.Now()
	out := &stats.Summary{Node: k.nodeStats(now, onlyCPUAndMemory), Pods: []stats.PodStats{}}
	for _, w := range k.list() {
		pod := w.current()
		observed := w.seen()
		if observed == nil || len(observed.Running()) == 0 {
			continue
		}
		p := stats.PodStats{PodRef: stats.PodReference{Name: pod.Name, Namespace: pod.Namespace, UID: string(pod.UID)}, Containers: []stats.ContainerStats{}}
		if s := observed.ReadySandbox(); s != nil {
			p.StartTime = metav1.NewTime(s.CreatedAt)
		}
		var cores uint64
		for _, s := range byPod[string(pod.UID)] {
			running := observed.FindID(s.GetAttributes().GetId())
			if running == nil || running.State != cri.Running {
				continue
			}
			c := containerStats(s)
			c.StartTime = metav1.NewTime(running.StartedAt)
			if c.CPU != nil && c.CPU.UsageNanoCores != nil {
				cores += *c.CPU.UsageNanoCores
			}
			p.Containers = append(p.Containers, c)
		}
		if usage, err := k.cgroups.Usage(pod); err == nil {
			p.CPU, p.Memory = fromGroup(usage, now)
			p.CPU.UsageNanoCores = &cores
			p.ProcessStats = &stats.ProcessStats{ProcessCount: pointer(usage.Processes)}
		}
		if !onlyCPUAndMemory {
			k.podDisk(&p, pod, now)
		}
		out.Pods = append(out.Pods, p)
	}
	return out, nil
}

func containerStats(s *runtimeapi.ContainerStats) stats.ContainerStats {
	c := stats.ContainerStats{Name: s.GetAttributes().GetMetadata().GetName(), StartTime: metav1.Now()}
	value := func(v *runtimeapi.UInt64Value) *uint64 {
		if v == nil {
			return nil
		}
		return pointer(v.GetValue())
	}
	if cpu := s.GetCpu(); cpu != nil {
		c.CPU = &stats.CPUStats{Time: metav1.NewTime(time.Unix(0, cpu.GetTimestamp())), UsageNanoCores: value(cpu.GetUsageNanoCores()), UsageCoreNanoSeconds: value(cpu.GetUsageCoreNanoSeconds())}
	}
	if m := s.GetMemory(); m != nil {
		c.Memory = &stats.MemoryStats{
			Time: metav1.NewTime(time.Unix(0, m.GetTimestamp())), WorkingSetBytes: value(m.GetWorkingSetBytes()), AvailableBytes: value(m.GetAvailableBytes()),
			UsageBytes: value(m.GetUsageBytes()), RSSBytes: value(m.GetRssBytes()), PageFaults: value(m.GetPageFaults()), MajorPageFaults: value(m.GetMajorPageFaults()),
		}
	}
	if fs := s.GetWritableLayer(); fs != nil {
		c.Rootfs = &stats.FsStats{Time: metav1.NewTime(time.Unix(0, fs.GetTimestamp())), UsedBytes: value(fs.GetUsedBytes()), InodesUsed: value(fs.GetInodesUsed())}
	}
	return c
}

func fromGroup(u cgroup.Usage, now metav1.Time) (*stats.CPUStats, *stats.MemoryStats) {
	return &stats.CPUStats{Time: now, UsageCoreNanoSeconds: pointer(u.CPUNanoseconds)},
		&stats.MemoryStats{Time: now, UsageBytes: pointer(u.MemoryBytes), WorkingSetBytes: pointer(u.WorkingSetBytes), RSSBytes: pointer(u.RSSBytes),
			PageFaults: pointer(u.PageFaults), MajorPageFaults: pointer(u.MajorPageFaults)}
}

func (k *Kubelet) nodeStats(now metav1.Time, onlyCPUAndMemory bool) stats.NodeStats {
	n := stats.NodeStats{NodeName: k.config.NodeName, StartTime: metav1.NewTime(k.started)}
	if usage, err := k.config.Groups.Usage("/"); err == nil {
		n.CPU, n.Memory = fromGroup(usage, now)
		n.CPU.UsageNanoCores = k.nodeCores(usage.CPUNanoseconds)
	}
	free, err := k.config.Machine.Free()
	if err != nil {
		return n
	}
	if n.Memory != nil {
		n.Memory.AvailableBytes = pointer(uint64(max(free.MemoryBytes, 0)))
	}
	if onlyCPUAndMemory || free.DiskTotal == 0 {
		return n
	}
	n.Fs = &stats.FsStats{
		Time: now, AvailableBytes: pointer(uint64(free.DiskBytes)), CapacityBytes: pointer(uint64(free.DiskTotal)), UsedBytes: pointer(uint64(free.DiskTotal - free.DiskBytes)),
		InodesFree: pointer(uint64(free.Inodes)), Inodes: pointer(uint64(free.InodesTotal)), InodesUsed: pointer(uint64(free.InodesTotal - free.Inodes)),
	}
	n.Runtime = &stats.RuntimeStats{ImageFs: n.Fs, ContainerFs: n.Fs}
	n.Rlimit = &stats.RlimitStats{Time: now, MaxPID: pointer(free.PIDsTotal), NumOfRunningProcesses: pointer(free.PIDsTotal - free.PIDs)}
	return n
}

// nodeCores is the node's use of CPU since it was last asked for.
func (k *Kubelet) nodeCores(total uint64) *uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	last, at := k.cpuTotal, k.cpuTime
	k.cpuTotal, k.cpuTime = total, now
	if at.IsZero() || total < last || now.Sub(at) <= 0 {
		return pointer(uint64(0))
	}
	return pointer(uint64(float64(total-last) / now.Sub(at).Seconds()))
}

// podDisk adds what the pod's volumes take up.
func (k *Kubelet) podDisk(p *stats.PodStats, pod *v1.Pod, now metav1.Time) {
	bytes, inodes, err := k.config.Files.Usage(k.volumes.PodDir(pod.UID))
	if err == nil {
		p.EphemeralStorage = &stats.FsStats{Time: now, UsedBytes: pointer(uint64(bytes)), InodesUsed: pointer(uint64(inodes))}
	}
	for i := range pod.Spec.Volumes {
		vol := &pod.Spec.Volumes[i]
		if vol.EmptyDir == nil {
			continue
		}
		if bytes, inodes, err := k.config.Files.Usage(k.volumes.EmptyDir(pod.UID, vol.Name)); err == nil {
			p.VolumeStats = append(p.VolumeStats, stats.VolumeStats{Name: vol.Name, FsStats: stats.FsStats{Time: now, UsedBytes: pointer(uint64(bytes)), InodesUsed: pointer(uint64(inodes))}})
		}
	}
}
