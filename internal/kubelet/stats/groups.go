package stats

import (
	"context"
	"path"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/kubelet/cgroup"
	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/podquery"
)

// Group is one control group as /metrics/cadvisor shows it: of a container or
// sandbox, of a pod, of a service class, or the machine's.
type Group struct {
	ID                                 string // its path
	Name                               string // the runtime's id of the container
	Image, Container, Pod, Namespace   string
	Usage                              cgroup.Usage
	Started                            time.Time
	Disk                               *uint64 // bytes in the writable layer
	Disks                              []cgroup.Disk
	Interfaces                         []Interface
	MemoryLimit, Shares, Quota, Period int64 // 0: none
}

// Machine is the computer that the groups are on.
type Machine struct {
	CPUs, MemoryBytes                         int64
	BootID, MachineID, SystemUUID, Kernel, OS string
}

// Interface is a network interface of a pod.
type Interface struct {
	Name                                                string
	ReceivedBytes, ReceiveErrors, SentBytes, SendErrors uint64
	Packets                                             *cgroup.Packets // nil if they are not known
}

// Groups returns the machine and the control groups of its pods.
func (p *Provider) Groups(ctx context.Context) (Machine, []Group, error) {
	capacity, err := p.Machine.Capacity()
	if err != nil {
		return Machine{}, nil, err
	}
	info := p.Machine.Info()
	machine := Machine{
		CPUs: capacity.Cpu().Value(), MemoryBytes: capacity.Memory().Value(),
		BootID: info.BootID, MachineID: info.MachineID, SystemUUID: info.SystemUUID, Kernel: info.KernelVersion, OS: info.OSImage,
	}
	var out []Group
	add := func(g Group) {
		usage, err := p.CGroups.Groups.Usage(g.ID)
		if err != nil {
			return
		}
		g.Usage, g.Disks = usage, p.CGroups.Groups.Disks(g.ID)
		p.addPackets(g.Interfaces, g.ID)
		out = append(out, g)
	}
	root := p.CGroups.Configuration.CgroupRoot
	add(Group{ID: "/"})
	for _, class := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		add(Group{ID: cgroup.Parent(root, class)})
	}
	byPod, err := cri.Stats(ctx, p.Runtime)
	if err != nil {
		klog.FromContext(ctx).Error(err, "The containers' statistics cannot be read")
	}
	networks := p.networks(ctx)
	for _, pod := range p.Pods() {
		observed := pod.Runtime
		if len(observed.Running()) == 0 {
			continue
		}
		parent := cgroup.Pod(root, podquery.QOSClass(pod.Pod), pod.UID)
		add(Group{ID: parent, Pod: pod.Name, Namespace: pod.Namespace})
		if s := observed.ReadySandbox(); s != nil {
			add(Group{
				ID: path.Join(parent, s.ID), Name: s.ID, Pod: pod.Name, Namespace: pod.Namespace,
				Started: s.CreatedAt, Interfaces: networks[s.ID],
			})
		}
		layers := map[string]*uint64{}
		for _, s := range byPod[pod.UID] {
			if used := s.GetWritableLayer().GetUsedBytes(); used != nil {
				layers[s.GetAttributes().GetId()] = pointer(used.GetValue())
			}
		}
		for _, c := range observed.Running() {
			add(container(path.Join(parent, c.ID), pod.Pod, c, layers[c.ID]))
		}
	}
	return machine, out, nil
}

func container(id string, pod *v1.Pod, c *cri.Container, layer *uint64) Group {
	return Group{
		ID: id, Name: c.ID, Image: c.Image, Container: c.Name, Pod: pod.Name, Namespace: pod.Namespace, Started: c.StartedAt, Disk: layer,
		MemoryLimit: c.Resources.GetMemoryLimitInBytes(), Shares: c.Resources.GetCpuShares(), Quota: c.Resources.GetCpuQuota(), Period: c.Resources.GetCpuPeriod(),
	}
}

// networks returns the interfaces of the running sandboxes, as far as the
// runtime reports them.
func (p *Provider) networks(ctx context.Context) map[string][]Interface {
	list, err := p.Runtime.ListPodSandboxStats(ctx, nil)
	if err != nil {
		return nil
	}
	out := map[string][]Interface{}
	for _, s := range list {
		i := s.GetLinux().GetNetwork().GetDefaultInterface()
		if i == nil || i.GetName() == "" {
			continue
		}
		out[s.GetAttributes().GetId()] = []Interface{{
			Name: i.GetName(), ReceivedBytes: i.GetRxBytes().GetValue(), ReceiveErrors: i.GetRxErrors().GetValue(),
			SentBytes: i.GetTxBytes().GetValue(), SendErrors: i.GetTxErrors().GetValue(),
		}}
	}
	return out
}

// addPackets adds the packets of the interfaces of a sandbox, which the runtime
// does not report, from the processes in its control group.
func (p *Provider) addPackets(interfaces []Interface, group string) {
	if len(interfaces) == 0 {
		return
	}
	known := p.CGroups.Groups.Packets(group)
	for i := range interfaces {
		if n, ok := known[interfaces[i].Name]; ok {
			interfaces[i].Packets = &n
		}
	}
}
