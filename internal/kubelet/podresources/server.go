// Package podresources serves which devices, CPUs and memory the containers of
// the node have, at a socket of the node. It corresponds to upstream's pod resources
// API (k8s.io/kubelet/pkg/apis/podresources/v1).
package podresources

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/cpuset"

	"github.com/coracle-io/coracle/internal/kubelet/devicemanager"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/localapi"
	"github.com/coracle-io/coracle/internal/kubelet/memorymanager/state"
	"github.com/coracle-io/coracle/internal/podquery"
)

// Devices are the devices of containers.
type Devices interface {
	ContainerDevices(uid types.UID, container string) []devicemanager.Devices
	AllocatableDevices() []devicemanager.Devices
}

// Claims are the ResourceClaims of containers.
type Claims interface {
	DynamicResources(pod *v1.Pod, c *v1.Container) []*api.DynamicResource
}

// CPUs are the CPUs that containers have for themselves.
type CPUs interface {
	Exclusive(uid types.UID, container string) cpuset.CPUSet
	Allocatable() cpuset.CPUSet
}

// Memory is the memory that is guaranteed to containers.
type Memory interface {
	Blocks(uid types.UID, container string) []state.Block
	Allocatable() []state.Block
}

// version is the version of the API, as metrics show it.
const version = "v1"

// Config configures a Server.
type Config struct {
	Dir     string // of the socket
	Files   files.FS
	Active  func() []*v1.Pod // the pods that hold resources of the node
	Devices Devices
	Claims  Claims
	CPUs    CPUs
	Memory  Memory
	Metrics prometheus.Registerer
}

// Server answers about the resources of pods.
type Server struct {
	api.UnimplementedPodResourcesListerServer
	config   Config
	requests map[string]*prometheus.CounterVec // by method; "" is all
	errors   map[string]*prometheus.CounterVec // by method
}

// New returns a server. Run serves.
func New(c Config) *Server {
	s := &Server{config: c, requests: map[string]*prometheus.CounterVec{}, errors: map[string]*prometheus.CounterVec{}}
	s.requests[""] = s.counter("requests_total", "Cumulative number of requests to the PodResource endpoint.")
	for method, name := range map[string]string{"List": "list", "Get": "get", "GetAllocatableResources": "get_allocatable"} {
		s.requests[method] = s.counter("requests_"+name, "Number of requests to the PodResource "+method+" endpoint.")
		s.errors[method] = s.counter("errors_"+name, "Number of requests to the PodResource "+method+" endpoint which returned error.")
	}
	return s
}

// counter returns a new counter, which is shown if there is a registry.
func (s *Server) counter(name, help string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubelet_pod_resources_endpoint_" + name, Help: "[ALPHA] " + help + " Broken down by server api version.",
	}, []string{"server_api_version"})
	if s.config.Metrics != nil {
		s.config.Metrics.MustRegister(c)
	}
	return c
}

// count counts a request to a method.
func (s *Server) count(method string, err error) {
	s.requests[""].WithLabelValues(version).Inc()
	s.requests[method].WithLabelValues(version).Inc()
	if err != nil {
		s.errors[method].WithLabelValues(version).Inc()
	}
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) {
	service := localapi.Service{
		Name: "pod resources", Dir: s.config.Dir, Socket: "kubelet.sock", Files: s.config.Files,
		Register: func(r grpc.ServiceRegistrar) { api.RegisterPodResourcesListerServer(r, s) },
		Count:    s.count,
	}
	service.Run(ctx)
}

// List implements the API.
func (s *Server) List(context.Context, *api.ListPodResourcesRequest) (*api.ListPodResourcesResponse, error) {
	response := &api.ListPodResourcesResponse{}
	for _, pod := range s.config.Active() {
		response.PodResources = append(response.PodResources, s.of(pod))
	}
	return response, nil
}

// Get implements the API.
func (s *Server) Get(_ context.Context, r *api.GetPodResourcesRequest) (*api.GetPodResourcesResponse, error) {
	for _, pod := range s.config.Active() {
		if pod.Name == r.GetPodName() && pod.Namespace == r.GetPodNamespace() {
			return &api.GetPodResourcesResponse{PodResources: s.of(pod)}, nil
		}
	}
	return nil, fmt.Errorf("pod %s in namespace %s not found", r.GetPodName(), r.GetPodNamespace())
}

// GetAllocatableResources implements the API.
func (s *Server) GetAllocatableResources(context.Context, *api.AllocatableResourcesRequest) (*api.AllocatableResourcesResponse, error) {
	return &api.AllocatableResourcesResponse{
		Devices: devices(s.config.Devices.AllocatableDevices()), CpuIds: ids(s.config.CPUs.Allocatable()), Memory: memory(s.config.Memory.Allocatable()),
	}, nil
}

// of returns the resources of a pod: of its containers and sidecars.
func (s *Server) of(pod *v1.Pod) *api.PodResources {
	out := &api.PodResources{Name: pod.Name, Namespace: pod.Namespace}
	add := func(c *v1.Container) {
		out.Containers = append(out.Containers, &api.ContainerResources{
			Name: c.Name, Devices: devices(s.config.Devices.ContainerDevices(pod.UID, c.Name)),
			CpuIds: ids(s.config.CPUs.Exclusive(pod.UID, c.Name)), Memory: memory(s.config.Memory.Blocks(pod.UID, c.Name)),
			DynamicResources: s.config.Claims.DynamicResources(pod, c),
		})
	}
	for i := range pod.Spec.InitContainers {
		if podquery.IsSidecar(&pod.Spec.InitContainers[i]) {
			add(&pod.Spec.InitContainers[i])
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	return out
}

// devices returns an entry for each device and NUMA node.
func devices(list []devicemanager.Devices) []*api.ContainerDevices {
	var out []*api.ContainerDevices
	for _, d := range list {
		for _, node := range d.Nodes() {
			for _, id := range d.IDs[node] {
				entry := &api.ContainerDevices{ResourceName: d.Resource, DeviceIds: []string{id}}
				if node >= 0 {
					entry.Topology = &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: node}}}
				}
				out = append(out, entry)
			}
		}
	}
	return out
}

func ids(set cpuset.CPUSet) []int64 {
	var out []int64
	for _, id := range set.List() {
		out = append(out, int64(id))
	}
	return out
}

func memory(blocks []state.Block) []*api.ContainerMemory {
	var out []*api.ContainerMemory
	for _, b := range blocks {
		entry := &api.ContainerMemory{MemoryType: string(b.Type), Size: b.Size, Topology: &api.TopologyInfo{}}
		for _, id := range b.NUMAAffinity {
			entry.Topology.Nodes = append(entry.Topology.Nodes, &api.NUMANode{ID: int64(id)})
		}
		out = append(out, entry)
	}
	return out
}
