package devicemanager

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/coracle-io/coracle/internal/kubelet/hostpath"
)

// Capacity returns how many devices the node has, and how many of them are
// healthy. A resource whose plugin has stopped permanently has none.
func (m *Manager) Capacity() (capacity, allocatable v1.ResourceList) {
	m.mu.Lock()
	defer m.mu.Unlock()
	capacity, allocatable = v1.ResourceList{}, v1.ResourceList{}
	count := func(n int) apiresource.Quantity { return *apiresource.NewQuantity(int64(n), apiresource.DecimalSI) }
	for name := range m.removed {
		capacity[v1.ResourceName(name)], allocatable[v1.ResourceName(name)] = count(0), count(0)
	}
	for name, r := range m.resources {
		capacity[v1.ResourceName(name)], allocatable[v1.ResourceName(name)] = count(len(r.devices)), count(r.healthy().Len())
	}
	return capacity, allocatable
}

// Start adds the devices of a container to its configuration, after it has let
// the plugins prepare them.
func (m *Manager) Start(ctx context.Context, pod *v1.Pod, c *v1.Container, config *runtimeapi.ContainerConfig) error {
	m.mu.Lock()
	allocated := m.pods[pod.UID][c.Name]
	var calls []func() error
	var answers []*pluginapi.ContainerAllocateResponse
	for _, name := range sortedKeys(allocated) {
		answers = append(answers, allocated[name].answer)
		r := m.resources[name]
		if !r.prepares() {
			continue
		}
		p, ids := r.plugin, sets.List(allocated[name].ids())
		calls = append(calls, func() error {
			if p == nil {
				return fmt.Errorf("endpoint not found in cache for a registered resource: %s", name)
			}
			call, cancel := context.WithTimeout(ctx, startTimeout)
			defer cancel()
			if _, err := p.client.PreStartContainer(call, &pluginapi.PreStartContainerRequest{DevicesIds: ids}); err != nil {
				return fmt.Errorf("device plugin PreStartContainer rpc failed with err: %w", err)
			}
			return nil
		})
	}
	m.mu.Unlock()
	for _, call := range calls {
		if err := call(); err != nil {
			return err
		}
	}
	configure(config, answers, m.config.Paths)
	return nil
}

// prepares reports whether the plugin prepares devices for each container.
func (r *resource) prepares() bool { return r != nil && r.options.GetPreStartRequired() }

// configure adds what plugins have answered to the configuration of a container.
// Plugins may name paths of the machine by the usual directories of the kubelet.
// The container's own variables, and what the first plugin says, take precedence.
func configure(config *runtimeapi.ContainerConfig, answers []*pluginapi.ContainerAllocateResponse, paths hostpath.Directories) {
	var envs []*runtimeapi.KeyValue
	for _, a := range answers {
		for _, key := range sortedKeys(a.GetEnvs()) {
			if !slices.ContainsFunc(envs, func(kv *runtimeapi.KeyValue) bool { return kv.GetKey() == key }) {
				envs = append(envs, &runtimeapi.KeyValue{Key: key, Value: []byte(a.GetEnvs()[key])})
			}
		}
		for _, mount := range a.GetMounts() {
			if !slices.ContainsFunc(config.Mounts, func(m *runtimeapi.Mount) bool { return m.GetContainerPath() == mount.GetContainerPath() }) {
				config.Mounts = append(config.Mounts, &runtimeapi.Mount{ContainerPath: mount.GetContainerPath(), HostPath: paths.Real(mount.GetHostPath()), Readonly: mount.GetReadOnly()})
			}
		}
		for _, d := range a.GetDevices() {
			if !slices.ContainsFunc(config.Devices, func(have *runtimeapi.Device) bool { return have.GetContainerPath() == d.GetContainerPath() }) {
				config.Devices = append(config.Devices, &runtimeapi.Device{ContainerPath: d.GetContainerPath(), HostPath: paths.Real(d.GetHostPath()), Permissions: d.GetPermissions()})
			}
		}
		for _, key := range sortedKeys(a.GetAnnotations()) {
			if _, known := config.GetAnnotations()[key]; !known {
				if config.Annotations == nil {
					config.Annotations = map[string]string{}
				}
				config.Annotations[key] = a.GetAnnotations()[key]
			}
		}
		for _, d := range a.GetCdiDevices() {
			if !slices.ContainsFunc(config.CDIDevices, func(have *runtimeapi.CDIDevice) bool { return have.GetName() == d.GetName() }) {
				config.CDIDevices = append(config.CDIDevices, &runtimeapi.CDIDevice{Name: d.GetName()})
			}
		}
	}
	config.Envs = append(envs, config.Envs...)
}

// ResourcesStatus returns the health of the devices of a container, as its
// status shows it (KEP-4680).
func (m *Manager) ResourcesStatus(uid types.UID, container string) []v1.ResourceStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []v1.ResourceStatus
	for _, name := range sortedKeys(m.pods[uid][container]) {
		status := v1.ResourceStatus{Name: v1.ResourceName(name)}
		for _, id := range sets.List(m.pods[uid][container][name].ids()) {
			health := v1.ResourceHealthStatusHealthy
			if r := m.resources[name]; r != nil && r.devices[id] != nil && r.devices[id].GetHealth() != pluginapi.Healthy {
				health = v1.ResourceHealthStatusUnhealthy
			}
			status.Resources = append(status.Resources, v1.ResourceHealth{ResourceID: v1.ResourceID(id), Health: health})
		}
		out = append(out, status)
	}
	return out
}

// AllocatableDevices returns the healthy devices of the node, sorted by
// resource.
func (m *Manager) AllocatableDevices() []Devices {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Devices
	for _, name := range sortedKeys(m.resources) {
		of := Devices{Resource: name, IDs: map[int64][]string{}}
		for _, id := range sets.List(m.resources[name].healthy()) {
			for _, node := range m.nodesOf(name, id) {
				of.IDs[node] = append(of.IDs[node], id)
			}
		}
		out = append(out, of)
	}
	return out
}
