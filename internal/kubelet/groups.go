package kubelet

import (
	"context"
	"path"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cgroup"
	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/server"
	podutil "github.com/coracle-io/coracle/internal/pod"
)

// Groups implements server.Backend.
func (b backend) Groups(ctx context.Context) (server.Machine, []server.Group, error) {
	k := b.k
	capacity, err := k.config.Machine.Capacity()
	if err != nil {
		return server.Machine{}, nil, err
	}
	info := k.config.Machine.Info()
	machine := server.Machine{
		CPUs: capacity.Cpu().Value(), MemoryBytes: capacity.Memory().Value(),
		BootID: info.BootID, MachineID: info.MachineID, SystemUUID: info.SystemUUID, Kernel: info.KernelVersion, OS: info.OSImage,
	}
	var out []server.Group
	add := func(g server.Group) {
		usage, err := k.config.Groups.Usage(g.ID)
		if err != nil {
			return
		}
		g.Usage = usage
		out = append(out, g)
	}
	root := k.config.Configuration.CgroupRoot
	add(server.Group{ID: "/"})
	for _, class := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		add(server.Group{ID: cgroup.Parent(root, class)})
	}
	uses, networks := k.uses(ctx), k.networks(ctx)
	for _, w := range k.list() {
		pod, observed := w.current(), w.seen()
		if observed == nil || len(observed.Running()) == 0 {
			continue
		}
		parent := cgroup.Pod(root, podutil.QOSClass(pod), pod.UID)
		add(server.Group{ID: parent, Pod: pod.Name, Namespace: pod.Namespace})
		if s := observed.ReadySandbox(); s != nil {
			add(server.Group{
				ID: path.Join(parent, s.ID), Name: s.ID, Pod: pod.Name, Namespace: pod.Namespace,
				Started: s.CreatedAt, Interfaces: networks[s.ID],
			})
		}
		layers := map[string]*uint64{}
		for _, s := range uses.stats[string(pod.UID)] {
			if used := s.GetWritableLayer().GetUsedBytes(); used != nil {
				layers[s.GetAttributes().GetId()] = pointer(used.GetValue())
			}
		}
		for _, c := range observed.Running() {
			add(container(path.Join(parent, c.ID), pod, c, layers[c.ID]))
		}
	}
	return machine, out, nil
}

func container(id string, pod *v1.Pod, c *cri.Container, layer *uint64) server.Group {
	return server.Group{
		ID: id, Name: c.ID, Image: c.Image, Container: c.Name, Pod: pod.Name, Namespace: pod.Namespace, Started: c.StartedAt, Disk: layer,
		MemoryLimit: c.Resources.GetMemoryLimitInBytes(), Shares: c.Resources.GetCpuShares(), Quota: c.Resources.GetCpuQuota(), Period: c.Resources.GetCpuPeriod(),
	}
}

// networks are the interfaces of the running sandboxes, as far as the runtime
// tells.
func (k *Kubelet) networks(ctx context.Context) map[string][]server.Interface {
	list, err := k.runtime.ListPodSandboxStats(ctx, nil)
	if err != nil {
		return nil
	}
	out := map[string][]server.Interface{}
	for _, s := range list {
		i := s.GetLinux().GetNetwork().GetDefaultInterface()
		if i == nil || i.GetName() == "" {
			continue
		}
		out[s.GetAttributes().GetId()] = []server.Interface{{
			Name: i.GetName(), ReceivedBytes: i.GetRxBytes().GetValue(), ReceiveErrors: i.GetRxErrors().GetValue(),
			SentBytes: i.GetTxBytes().GetValue(), SendErrors: i.GetTxErrors().GetValue(),
		}}
	}
	return out
}
