package kubelet

import (
	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/kubelet/node"
)

// Version is what the node says that its kubelet is.
const Version = "v1.37.2"

func (k *Kubelet) nodeConfig(runtimeVersion string) node.Config {
	c := &k.config.Configuration
	reserved, _ := node.Reserved(c)
	return node.Config{
		Client: k.config.Client, Name: k.config.NodeName, Hostname: k.config.Hostname, IPs: k.facts.IPs,
		Labels: k.config.NodeLabels, Taints: c.RegisterWithTaints, Register: *c.RegisterNode, ProviderID: c.ProviderID,
		Machine: k.config.Machine, Reserved: reserved, MaxPods: c.MaxPods, MaxImages: int(*c.NodeStatusMaxImages), Port: c.Port,
		PodCIDR:         c.PodCIDR,
		UpdateFrequency: c.NodeStatusUpdateFrequency.Duration, ReportFrequency: c.NodeStatusReportFrequency.Duration, LeaseDuration: c.NodeLeaseDurationSeconds,
		Runtime: k.runtime, Images: k.images, RuntimeVersion: k.runtimeName + "://" + runtimeVersion, KubeletVersion: Version,
		Recorder: k.recorder, Changed: k.nodeChanged,
		Pressure: func() (memory, disk, pids bool) { p := k.pressure(); return p.memory, p.disk, p.pids },
	}
}

// nodeObject is the newest Node object known, nil before there is one.
func (k *Kubelet) nodeObject() *v1.Node {
	if k.node == nil {
		return nil
	}
	return k.node.Node()
}

// nodeChanged takes over what the Node object says of the resources for pods.
func (k *Kubelet) nodeChanged(n *v1.Node) {
	if len(n.Status.Allocatable) == 0 {
		return
	}
	k.mu.Lock()
	first := !k.registered
	k.facts.Allocatable, k.registered = n.Status.Allocatable, true
	k.mu.Unlock()
	if first {
		k.wakeAll()
	}
}
