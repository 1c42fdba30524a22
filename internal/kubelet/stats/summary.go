// Package stats provides the resource usage of the node and its pods for
// /stats/summary and /metrics/cadvisor. It corresponds to upstream's stats provider
// and cAdvisor.
package stats

import (
	"context"
	"errors"
	"path"
	"path/filepath"
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
	"github.com/coracle-io/coracle/internal/kubelet/node"
	"github.com/coracle-io/coracle/internal/kubelet/pod"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/supervise"
)

func pointer[T any](v T) *T { return &v }

// Provider reads the resource usage of the node and its pods.
type Provider struct {
	NodeName string
	Started  time.Time // when the kubelet started
	Pods     func() []pod.Observed
	Runtime  internalapi.RuntimeService
	Machine  node.Machine
	// Count counts the files of a tree of a pod, or returns what was counted at most a
	// minute ago. It ends early only while it waits for its turn: if ctx ends.
	Count   func(ctx context.Context, uid types.UID, path string) (bytes, inodes int64, at time.Time, err error)
	Volumes interface {
		PodDir(uid types.UID) string
		// Directory returns "" for volumes that the kubelet does not make.
		Directory(uid types.UID, vol *v1.Volume) string
	}
	// Measured has what persistent volumes use. It may be nil.
	Measured *Volumes
	CGroups  *cgroup.Pods
	// SystemCGroups returns the control groups of the kubelet and of the container
	// runtime, "" for what is not known.
	SystemCGroups func() (kubelet, runtime string)
	// PodLogsDir has the logs of containers.
	PodLogsDir string
	// FileSystems returns what is free on the file systems of the runtime's images and of
	// the writable layers of containers.
	FileSystems func(ctx context.Context) (images, containers node.FileSystem, err error)
	// Used returns what images and layers use of them, nil for what is not known.
	Used func(ctx context.Context) (images, containers *runtimeapi.FilesystemUsage)

	mu       sync.Mutex // guards what follows
	cpuTotal uint64     // nanoseconds of the node at cpuTime
	cpuTime  time.Time
	cpuUsed  map[string]cpuUse // by the id of a container
}

// countTime bounds how long Summary counts files: what is not counted then is left out.
const countTime = 15 * time.Second

// Summary returns the content of /stats/summary: CPU, memory, processes and disk
// of the node and of each running pod. With onlyCPUAndMemory it counts no files.
// It fails if the runtime does not answer.
func (p *Provider) Summary(ctx context.Context, onlyCPUAndMemory bool) (*statsapi.Summary, error) {
	byPod, err := cri.Stats(ctx, p.Runtime)
	if err != nil {
		return nil, err
	}
	now := metav1.Now()
	networks := map[string][]Interface{}
	if !onlyCPUAndMemory {
		networks = p.networks(ctx)
	}
	p.forgetCores(byPod)
	out := &statsapi.Summary{Node: p.nodeStats(ctx, now, onlyCPUAndMemory), Pods: []statsapi.PodStats{}}
	var running []pod.Observed
	for _, pod := range p.Pods() {
		if len(pod.Runtime.Running()) == 0 {
			continue
		}
		st := p.podStats(pod, byPod[pod.UID], now)
		if s := pod.Runtime.ReadySandbox(); s != nil {
			st.Network = network(networks[s.ID], now)
		}
		running, out.Pods = append(running, pod), append(out.Pods, st)
	}
	if onlyCPUAndMemory {
		return out, nil
	}
	ctx, cancel := context.WithTimeout(ctx, countTime)
	defer cancel()
	// A pod with many files delays no other.
	errs := supervise.ForEach(len(running), func(i int) error {
		p.addDisk(ctx, &out.Pods[i], running[i].Pod, &out.Node, now)
		return nil
	})
	return out, errors.Join(errs...)
}

// podStats returns the CPU, memory and processes of a running pod, and the writable
// layers of its containers.
func (p *Provider) podStats(pod pod.Observed, ofContainers []*runtimeapi.ContainerStats, now metav1.Time) statsapi.PodStats {
	st := statsapi.PodStats{PodRef: statsapi.PodReference{Name: pod.Name, Namespace: pod.Namespace, UID: string(pod.UID)}, Containers: []statsapi.ContainerStats{}}
	if s := pod.Runtime.ReadySandbox(); s != nil {
		st.StartTime = metav1.NewTime(s.CreatedAt)
	}
	var cores *uint64 // nil: none is known
	for _, s := range ofContainers {
		running := pod.Runtime.FindID(s.GetAttributes().GetId())
		if running == nil || running.State != cri.Running {
			continue
		}
		c := containerStats(s)
		c.StartTime = metav1.NewTime(running.StartedAt)
		p.addPressure(&c, path.Join(cgroup.Pod(p.CGroups.Configuration.CgroupRoot, podquery.QOSClass(pod.Pod), pod.UID), running.ID), now)
		if c.CPU != nil && c.CPU.UsageNanoCores == nil {
			c.CPU.UsageNanoCores = p.cores(running.ID, s.GetCpu())
		}
		if c.CPU != nil && c.CPU.UsageNanoCores != nil {
			if cores == nil {
				cores = pointer(uint64(0))
			}
			*cores += *c.CPU.UsageNanoCores
		}
		st.Containers = append(st.Containers, c)
	}
	if usage, err := p.CGroups.Usage(pod.Pod); err == nil {
		st.CPU, st.Memory = fromGroup(usage, now)
		st.Swap, st.IO = swap(usage, now), ioStats(usage.Pressures, now)
		st.CPU.UsageNanoCores = cores
		st.ProcessStats = &statsapi.ProcessStats{ProcessCount: pointer(usage.Processes)}
	}
	return st
}

// value returns what the runtime says, nil if it does not say anything.
func value(v *runtimeapi.UInt64Value) *uint64 {
	if v == nil {
		return nil
	}
	return pointer(v.GetValue())
}

func containerStats(s *runtimeapi.ContainerStats) statsapi.ContainerStats {
	c := statsapi.ContainerStats{Name: s.GetAttributes().GetMetadata().GetName(), StartTime: metav1.Now()}
	if cpu := s.GetCpu(); cpu != nil {
		c.CPU = &statsapi.CPUStats{Time: metav1.NewTime(time.Unix(0, cpu.GetTimestamp())), UsageNanoCores: value(cpu.GetUsageNanoCores()), UsageCoreNanoSeconds: value(cpu.GetUsageCoreNanoSeconds())}
	}
	if m := s.GetMemory(); m != nil {
		c.Memory = &statsapi.MemoryStats{
			Time: metav1.NewTime(time.Unix(0, m.GetTimestamp())), WorkingSetBytes: value(m.GetWorkingSetBytes()), AvailableBytes: value(m.GetAvailableBytes()),
			UsageBytes: value(m.GetUsageBytes()), RSSBytes: value(m.GetRssBytes()), PageFaults: value(m.GetPageFaults()), MajorPageFaults: value(m.GetMajorPageFaults()),
		}
	}
	if swap := s.GetSwap(); swap != nil {
		c.Swap = &statsapi.SwapStats{Time: metav1.NewTime(time.Unix(0, swap.GetTimestamp())), SwapUsageBytes: value(swap.GetSwapUsageBytes()), SwapAvailableBytes: value(swap.GetSwapAvailableBytes())}
	}
	if fs := s.GetWritableLayer(); fs != nil {
		c.Rootfs = &statsapi.FsStats{Time: metav1.NewTime(time.Unix(0, fs.GetTimestamp())), UsedBytes: value(fs.GetUsedBytes()), InodesUsed: value(fs.GetInodesUsed())}
	}
	return c
}

func fromGroup(u cgroup.Usage, now metav1.Time) (*statsapi.CPUStats, *statsapi.MemoryStats) {
	return &statsapi.CPUStats{Time: now, UsageCoreNanoSeconds: pointer(u.CPUNanoseconds), PSI: psi(u.CPUPressure)},
		&statsapi.MemoryStats{Time: now, UsageBytes: pointer(u.MemoryBytes), WorkingSetBytes: pointer(u.WorkingSetBytes), RSSBytes: pointer(u.RSSBytes),
			PageFaults: pointer(u.PageFaults), MajorPageFaults: pointer(u.MajorPageFaults), PSI: psi(u.MemoryPressure)}
}

// psi returns the pressure of a resource, nil if it is not measured.
func psi(p *cgroup.Pressure) *statsapi.PSIStats {
	if p == nil {
		return nil
	}
	data := func(s cgroup.Stall) statsapi.PSIData {
		return statsapi.PSIData{Total: s.Nanoseconds, Avg10: s.Avg10, Avg60: s.Avg60, Avg300: s.Avg300}
	}
	return &statsapi.PSIStats{Full: data(p.Full), Some: data(p.Some)}
}

// ioStats returns the pressure of I/O, nil if it is not measured.
func ioStats(p cgroup.Pressures, now metav1.Time) *statsapi.IOStats {
	if p.IOPressure == nil {
		return nil
	}
	return &statsapi.IOStats{Time: now, PSI: psi(p.IOPressure)}
}

// addPressure adds the pressure in a container's group.
func (p *Provider) addPressure(c *statsapi.ContainerStats, group string, now metav1.Time) {
	pressures := p.CGroups.Groups.Pressures(group)
	if c.CPU != nil {
		c.CPU.PSI = psi(pressures.CPUPressure)
	}
	if c.Memory != nil {
		c.Memory.PSI = psi(pressures.MemoryPressure)
	}
	c.IO = ioStats(pressures, now)
}

func swap(u cgroup.Usage, now metav1.Time) *statsapi.SwapStats {
	return &statsapi.SwapStats{Time: now, SwapUsageBytes: pointer(u.SwapBytes)}
}

// network returns what went through the interfaces of a pod, nil if the runtime
// reports none.
func network(interfaces []Interface, now metav1.Time) *statsapi.NetworkStats {
	if len(interfaces) == 0 {
		return nil
	}
	n := &statsapi.NetworkStats{Time: now}
	for i := range interfaces {
		one := &interfaces[i]
		n.Interfaces = append(n.Interfaces, statsapi.InterfaceStats{
			Name: one.Name, RxBytes: &one.ReceivedBytes, RxErrors: &one.ReceiveErrors, TxBytes: &one.SentBytes, TxErrors: &one.SendErrors,
		})
	}
	n.InterfaceStats = n.Interfaces[0]
	return n
}

// counted returns the disk usage of a tree of a pod, nil if it cannot be counted.
func (p *Provider) counted(ctx context.Context, uid types.UID, path string) *statsapi.FsStats {
	bytes, inodes, at, err := p.Count(ctx, uid, path)
	if err != nil {
		return nil
	}
	return &statsapi.FsStats{Time: metav1.NewTime(at), UsedBytes: pointer(uint64(bytes)), InodesUsed: pointer(uint64(inodes))}
}

// logs returns the disk usage of a container's logs, nil if it cannot be
// counted.
func (p *Provider) logs(ctx context.Context, pod *v1.Pod, container string, now metav1.Time) *statsapi.FsStats {
	out := p.counted(ctx, pod.UID, filepath.Join(spec.PodLogDirectory(p.PodLogsDir, pod.Namespace, pod.Name, string(pod.UID)), container))
	if out == nil {
		return nil
	}
	if fs, err := p.Machine.FileSystem(p.PodLogsDir); err == nil {
		within(out, fsStats(now, fs))
	}
	return out
}

// within adds what there is on the file system of a part. Either may be nil.
func within(part, whole *statsapi.FsStats) {
	if part != nil && whole != nil {
		part.AvailableBytes, part.CapacityBytes, part.Inodes, part.InodesFree = whole.AvailableBytes, whole.CapacityBytes, whole.Inodes, whole.InodesFree
	}
}

// systemContainers returns the usage of the control groups of all pods, of the kubelet
// and of the container runtime, as far as they are known.
func (p *Provider) systemContainers(now metav1.Time) (all []statsapi.ContainerStats) {
	kubelet, runtime := p.SystemCGroups()
	for _, of := range []struct{ name, group string }{
		{statsapi.SystemContainerPods, cgroup.Parent(p.CGroups.Configuration.CgroupRoot, v1.PodQOSGuaranteed)},
		{statsapi.SystemContainerKubelet, kubelet},
		{statsapi.SystemContainerRuntime, runtime},
	} {
		if of.group == "" {
			continue
		}
		usage, err := p.CGroups.Groups.Usage(of.group)
		if err != nil {
			continue
		}
		c := statsapi.ContainerStats{Name: of.name, StartTime: metav1.NewTime(p.Started), Swap: swap(usage, now), IO: ioStats(usage.Pressures, now)}
		c.CPU, c.Memory = fromGroup(usage, now)
		all = append(all, c)
	}
	return all
}

func (p *Provider) nodeStats(ctx context.Context, now metav1.Time, onlyCPUAndMemory bool) statsapi.NodeStats {
	n := statsapi.NodeStats{NodeName: p.NodeName, StartTime: metav1.NewTime(p.Started)}
	if usage, err := p.CGroups.Groups.Usage("/"); err == nil {
		n.CPU, n.Memory = fromGroup(usage, now)
		n.CPU.UsageNanoCores = p.nodeCores(usage.CPUNanoseconds)
		n.Swap, n.IO = swap(usage, now), ioStats(usage.Pressures, now)
	}
	n.SystemContainers = p.systemContainers(now)
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
	n.Fs = fsStats(now, free.Disk())
	n.Runtime = &statsapi.RuntimeStats{ImageFs: n.Fs, ContainerFs: n.Fs}
	if images, containers, err := p.FileSystems(ctx); err == nil && images.Total > 0 {
		ofImages, ofContainers := p.Used(ctx)
		n.Runtime.ImageFs = usedStats(now, images, ofImages)
		n.Runtime.ContainerFs = n.Runtime.ImageFs
		if containers.Device != images.Device {
			n.Runtime.ContainerFs = usedStats(now, containers, ofContainers)
		}
	}
	n.Rlimit = &statsapi.RlimitStats{Time: now, MaxPID: pointer(free.PIDsTotal), NumOfRunningProcesses: pointer(free.PIDsTotal - free.PIDs)}
	return n
}

// usedStats returns the statistics of a file system of the runtime, with what the runtime
// says that it uses of it. Without that, everything on it counts.
func usedStats(now metav1.Time, f node.FileSystem, used *runtimeapi.FilesystemUsage) *statsapi.FsStats {
	out := fsStats(now, f)
	if used.GetUsedBytes() != nil {
		out.UsedBytes, out.InodesUsed = value(used.GetUsedBytes()), value(used.GetInodesUsed())
	}
	return out
}

func fsStats(now metav1.Time, f node.FileSystem) *statsapi.FsStats {
	return &statsapi.FsStats{
		Time: now, AvailableBytes: pointer(uint64(f.Bytes)), CapacityBytes: pointer(uint64(f.Total)), UsedBytes: pointer(uint64(f.Total - f.Bytes)),
		InodesFree: pointer(uint64(f.Inodes)), Inodes: pointer(uint64(f.InodesTotal)), InodesUsed: pointer(uint64(f.InodesTotal - f.Inodes)),
	}
}

// nodeCores returns the average CPU usage of the node since the last call, in
// nanocores.
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

// addDisk adds the disk usage of the logs of a pod's containers, the file system of their
// writable layers, the usage of the pod, which includes that of its containers, and that of
// its volumes. The node has the file systems, as far as they are known.
func (p *Provider) addDisk(ctx context.Context, st *statsapi.PodStats, pod *v1.Pod, on *statsapi.NodeStats, now metav1.Time) {
	for i := range st.Containers {
		st.Containers[i].Logs = p.logs(ctx, pod, st.Containers[i].Name, now)
		if on.Runtime != nil {
			within(st.Containers[i].Rootfs, on.Runtime.ContainerFs)
		}
	}
	if whole := p.counted(ctx, pod.UID, p.Volumes.PodDir(pod.UID)); whole != nil {
		within(whole, on.Fs)
		for i := range st.Containers {
			addUsage(whole, st.Containers[i].Rootfs)
			addUsage(whole, st.Containers[i].Logs)
		}
		st.EphemeralStorage = whole
	}
	for i := range pod.Spec.Volumes {
		vol := &pod.Spec.Volumes[i]
		dir := p.Volumes.Directory(pod.UID, vol)
		if dir == "" {
			continue
		}
		used := p.counted(ctx, pod.UID, dir)
		if used == nil || *used.InodesUsed == 0 { // no container mounts it
			continue
		}
		if podquery.IsOnDisk(vol) {
			within(used, on.Fs)
		} else if memory, err := p.Machine.FileSystem(dir); err == nil {
			within(used, fsStats(now, memory))
		}
		st.VolumeStats = append(st.VolumeStats, statsapi.VolumeStats{Name: vol.Name, FsStats: *used})
	}
	if p.Measured != nil {
		st.VolumeStats = append(st.VolumeStats, p.Measured.of(pod)...)
	}
}

// addUsage adds the usage of a part, which may be nil, as far as it is known.
func addUsage(whole, part *statsapi.FsStats) {
	if part == nil {
		return
	}
	if part.UsedBytes != nil {
		*whole.UsedBytes += *part.UsedBytes
	}
	if part.InodesUsed != nil {
		*whole.InodesUsed += *part.InodesUsed
	}
}
