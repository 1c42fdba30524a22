package podresources

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/cpuset"

	"github.com/coracle-io/coracle/internal/kubelet/devicemanager"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/localapi/localapitest"
	"github.com/coracle-io/coracle/internal/kubelet/memorymanager/state"
)

// held gives each container named main the same devices.
type held struct{}

func (held) ContainerDevices(_ types.UID, container string) []devicemanager.Devices {
	if container != "main" {
		return nil
	}
	return []devicemanager.Devices{{Resource: "example.com/device", IDs: map[int64][]string{-1: {"a"}, 1: {"b", "c"}}}}
}

func (held) AllocatableDevices() []devicemanager.Devices {
	return []devicemanager.Devices{{Resource: "example.com/device", IDs: map[int64][]string{0: {"d"}}}}
}

type claims struct{}

func (claims) DynamicResources(_ *v1.Pod, c *v1.Container) []*api.DynamicResource {
	if c.Name != "main" {
		return nil
	}
	return []*api.DynamicResource{{ClaimName: "gpu", ClaimNamespace: "default"}}
}

type cpus struct{}

func (cpus) Exclusive(_ types.UID, container string) cpuset.CPUSet {
	if container != "main" {
		return cpuset.New()
	}
	return cpuset.New(2, 3)
}

func (cpus) Allocatable() cpuset.CPUSet { return cpuset.New(1, 2, 3) }

type blocks struct{}

func (blocks) Blocks(_ types.UID, container string) []state.Block {
	if container != "main" {
		return nil
	}
	return []state.Block{{NUMAAffinity: []int{0, 1}, Type: v1.ResourceMemory, Size: 5}}
}

func (blocks) Allocatable() []state.Block {
	return []state.Block{{NUMAAffinity: []int{0}, Type: v1.ResourceMemory, Size: 9}}
}

// serve returns a client of a server that runs.
func serve(t *testing.T) (*Server, api.PodResourcesListerClient) {
	t.Helper()
	dir := localapitest.Dir(t)
	always := v1.ContainerRestartPolicyAlways
	pod := &v1.Pod{}
	pod.Name, pod.Namespace, pod.UID = "web", "default", "uid"
	pod.Spec.InitContainers = []v1.Container{{Name: "init"}, {Name: "sidecar", RestartPolicy: &always}}
	pod.Spec.Containers = []v1.Container{{Name: "main"}}
	s := New(Config{Dir: dir, Files: files.OS{}, Active: func() []*v1.Pod { return []*v1.Pod{pod} }, Devices: held{}, Claims: claims{}, CPUs: cpus{}, Memory: blocks{}})
	return s, api.NewPodResourcesListerClient(localapitest.Serve(t, s.Run, dir, "kubelet.sock"))
}

// Clients see what the containers of each pod have, and what there is.
func TestResourcesOfPods(t *testing.T) {
	s, c := serve(t)
	ready := grpc.WaitForReady(true)
	on := func(nodes ...int64) *api.TopologyInfo {
		info := &api.TopologyInfo{}
		for _, id := range nodes {
			info.Nodes = append(info.Nodes, &api.NUMANode{ID: id})
		}
		return info
	}
	const name = "example.com/device"
	want := &api.PodResources{Name: "web", Namespace: "default", Containers: []*api.ContainerResources{{Name: "sidecar"}, {
		Name: "main", CpuIds: []int64{2, 3}, DynamicResources: []*api.DynamicResource{{ClaimName: "gpu", ClaimNamespace: "default"}}, Memory: []*api.ContainerMemory{{MemoryType: "memory", Size: 5, Topology: on(0, 1)}},
		Devices: []*api.ContainerDevices{
			{ResourceName: name, DeviceIds: []string{"a"}}, {ResourceName: name, DeviceIds: []string{"b"}, Topology: on(1)}, {ResourceName: name, DeviceIds: []string{"c"}, Topology: on(1)}},
	}}}
	list, err := c.List(t.Context(), &api.ListPodResourcesRequest{}, ready)
	if err != nil || !proto.Equal(list, &api.ListPodResourcesResponse{PodResources: []*api.PodResources{want}}) {
		t.Errorf("the list is %v (%v), want %v", list, err, want)
	}
	got, err := c.Get(t.Context(), &api.GetPodResourcesRequest{PodName: "web", PodNamespace: "default"})
	if err != nil || !proto.Equal(got.GetPodResources(), want) {
		t.Errorf("the pod is %v (%v), want %v", got, err, want)
	}
	if _, err := c.Get(t.Context(), &api.GetPodResourcesRequest{PodName: "web", PodNamespace: "other"}); status.Convert(err).Message() != "pod web in namespace other not found" {
		t.Error(err)
	}
	all, err := c.GetAllocatableResources(t.Context(), &api.AllocatableResourcesRequest{})
	wantAll := &api.AllocatableResourcesResponse{
		Devices: []*api.ContainerDevices{{ResourceName: name, DeviceIds: []string{"d"}, Topology: on(0)}}, CpuIds: []int64{1, 2, 3},
		Memory: []*api.ContainerMemory{{MemoryType: "memory", Size: 9, Topology: on(0)}},
	}
	if err != nil || !proto.Equal(all, wantAll) {
		t.Errorf("allocatable are %v (%v), want %v", all, err, wantAll)
	}
	for method, want := range map[string]float64{"": 4, "List": 1, "Get": 2, "GetAllocatableResources": 1} {
		if got := testutil.ToFloat64(s.requests[method].WithLabelValues(version)); got != want {
			t.Errorf("%v requests of %q, want %v", got, method, want)
		}
	}
	for method, want := range map[string]float64{"List": 0, "Get": 1, "GetAllocatableResources": 0} {
		if got := testutil.ToFloat64(s.errors[method].WithLabelValues(version)); got != want {
			t.Errorf("%v errors of %s, want %v", got, method, want)
		}
	}
}
