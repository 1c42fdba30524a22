// Package simnode runs simulated nodes: the kubelet as it is, on a container
// runtime, a file system and control groups in memory.
//
//	API server ── pods of the node ──► Pods without probes over the network, tokens and host volumes
//	     ▲                                  │
//	     └── status, Lease, events ── kubelet ── CRI ──► runtime in memory: processes are timers
//
// Containers behave as the annotations of their pods say (see Behaviour). A
// simulated node opens no sockets and no files. It has no kubelet server, so that
// there are no logs and no exec; an API server in the same process asks it for its
// metrics without one (RoundTrip). It uses package time, so that it runs under
// testing/synctest.
package simnode

import (
	"context"
	"fmt"
	"net"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/kubelet"
	"github.com/coracle-io/coracle/internal/kubelet/cgroup"
	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/node"
)

// Config describes a simulated node.
type Config struct {
	Name string
	// IP is the address in the node's status. Nothing listens there.
	IP net.IP
	// PodCIDR has the addresses of pods while the Node object has no pod CIDR.
	PodCIDR string
	// Capacity has cpu, memory, ephemeral-storage and pods.
	Capacity v1.ResourceList
	Labels   map[string]string
	Taints   []v1.Taint
}

// Node is a simulated node. Its containers last as long as the value, as those
// of a real node outlive its kubelet.
type Node struct {
	config  Config
	runtime *inmemory.Runtime
	files   *files.Memory
	groups  *cgroup.Memory

	mu   sync.Mutex            // guards what follows
	pods map[types.UID]*v1.Pod // of the node, as the API server has them
	cpu  uint64                // nanoseconds that containers have used
}

// New returns a node without pods.
func New(c Config) *Node {
	n := &Node{config: c, runtime: inmemory.New(), files: &files.Memory{}, groups: &cgroup.Memory{}, pods: map[types.UID]*v1.Pod{}}
	n.runtime.Behave = n.behave
	return n
}

// Name returns the name of the Node object.
func (n *Node) Name() string { return n.config.Name }

// Run runs a kubelet until ctx ends. c has the node's own identity
// (system:node:NAME). Run may be called again after it has returned. The node
// reports nothing in between.
func (n *Node) Run(ctx context.Context, c *client.Client) error {
	k, err := kubelet.New(n.kubelet(c))
	if err != nil {
		return fmt.Errorf("simulated node %s: %w", n.config.Name, err)
	}
	return k.Run(ctx)
}

// kubelet returns the configuration of the node's kubelet. It leaves out what
// has no meaning without processes and files.
func (n *Node) kubelet(c *client.Client) kubelet.Config {
	capacity := n.config.Capacity.DeepCopy()
	pods := capacity.Pods().Value()
	delete(capacity, v1.ResourcePods)
	own := *c
	own.Watch = n.watch(c.Watch, c.Informers)
	off, none, all := false, int32(0), int32(100)
	nothing := ""
	config := kubelet.Config{
		NodeName: n.config.Name, NodeIPs: []string{n.config.IP.String()}, RootDirectory: "/var/lib/kubelet", NodeLabels: n.config.Labels, Client: &own,
		Runtime: n.runtime, Images: n.runtime.Images(), Files: n.files, Mounter: n.files, Groups: n.groups, WithoutSockets: true,
		Machine: &node.Fixed{Resources: capacity, System: v1.NodeSystemInfo{
			MachineID: n.config.Name, SystemUUID: n.config.Name, BootID: n.config.Name, KernelVersion: "simulated",
			OperatingSystem: "linux", Architecture: "amd64", OSImage: "Simulated", RunningInUserNamespace: &off,
		}},
	}
	config.Configuration = kubeletconfig.KubeletConfiguration{
		EnableServer: &off, MaxPods: int32(pods), PodCIDR: n.config.PodCIDR, RegisterWithTaints: n.config.Taints,
		ResolverConfig: &nothing, EvictionHard: map[string]string{}, ImageGCHighThresholdPercent: &all,
		RegistryPullQPS: &none, SerializeImagePulls: &off, ContainerLogMaxSize: "-1",
		SyncFrequency: metav1.Duration{Duration: syncFrequency},
	}
	return config
}

// pod returns a pod of the node as the API server has it, nil if it has none.
func (n *Node) pod(uid types.UID) *v1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pods[uid]
}

// Default returns the capacity of a simulated node for which none is given.
func Default() v1.ResourceList {
	return v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("32"), v1.ResourceMemory: resource.MustParse("256Gi"),
		v1.ResourceEphemeralStorage: resource.MustParse("1Ti"), v1.ResourcePods: resource.MustParse("110"),
	}
}
