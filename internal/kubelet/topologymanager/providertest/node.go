// Package providertest has what tests of the topology manager's providers share.
package providertest

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/topologymanager"
)

// Root is the directory of the kubelet on the disk of a Node.
const Root = "/var/lib/kubelet"

// Node is a node without a kubelet.
type Node struct {
	Disk *files.Memory
	// Active are the pods that may have running containers.
	Active []*v1.Pod

	t *testing.T
}

// NewNode returns a node without pods, whose disk has the directory Root.
func NewNode(t *testing.T) *Node {
	t.Helper()
	n := &Node{Disk: &files.Memory{}, t: t}
	if err := n.Disk.MkdirAll(Root, 0o755); err != nil {
		t.Fatal(err)
	}
	return n
}

// ActivePods returns Active.
func (n *Node) ActivePods() []*v1.Pod { return n.Active }

// Add adds an active guaranteed pod with a container for each of the requests,
// named a, b and so on. The first of them are init containers.
func (n *Node) Add(name string, init int, requests ...v1.ResourceList) *v1.Pod {
	pod := &v1.Pod{}
	pod.Name, pod.UID = name, types.UID("uid-"+name)
	for i, list := range requests {
		c := v1.Container{Name: string(rune('a' + i)), Resources: v1.ResourceRequirements{Limits: list.DeepCopy(), Requests: list}}
		if i < init {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		} else {
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
	}
	n.Active = append(n.Active, pod)
	return pod
}

// Requests returns requests of CPU and memory.
func Requests(cpu, memory string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
}

// Admit admits a pod without running containers, with a policy of the topology manager.
func (n *Node) Admit(pod *v1.Pod, policy string, nodes []int, provider topologymanager.Provider) error {
	n.t.Helper()
	return topologymanager.NewFor(policy, nodes, provider).Admit(n.t.Context(), pod, func(string) bool { return false })
}

// Write writes a file.
func (n *Node) Write(path, content string) {
	n.t.Helper()
	if err := n.Disk.WriteFile(path, []byte(content), 0o600); err != nil {
		n.t.Fatal(err)
	}
}
