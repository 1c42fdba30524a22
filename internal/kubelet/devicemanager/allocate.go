package devicemanager

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/coracle-io/coracle/internal/kubelet/devicemanager/checkpoint"
	"github.com/coracle-io/coracle/internal/kubelet/topologymanager"
	"github.com/coracle-io/coracle/internal/podquery"
)

// noNode stands for the NUMA node of a device that belongs to none.
const noNode = -1

// wanted returns the devices that a container asks for, by resource. m.mu is held.
func (m *Manager) wanted(pod *v1.Pod, c *v1.Container) map[string]int {
	out := map[string]int{}
	for name, q := range c.Resources.Limits {
		if n := q.Value(); n > 0 && m.manages(string(name)) && !claimed(pod, c, string(name)) {
			out[string(name)] = int(min(n, maxDevices+1))
		}
	}
	return out
}

// claimed reports whether a container has a resource by a claim (KEP-5004): it
// needs none of a device plugin.
func claimed(pod *v1.Pod, c *v1.Container, name string) bool {
	status := pod.Status.ExtendedResourceClaimStatus
	return status != nil && slices.ContainsFunc(status.RequestMappings, func(m v1.ContainerExtendedResourceRequest) bool {
		return m.ContainerName == c.Name && m.ResourceName == name
	})
}

// Needs implements topologymanager.Provider.
func (m *Manager) Needs(pod *v1.Pod) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for c := range podquery.Containers(&pod.Spec) {
		if len(m.wanted(pod, c)) > 0 {
			return true
		}
	}
	return false
}

// Allocate gives a container its devices. It implements
// topologymanager.Provider, which calls it for one container at a time.
func (m *Manager) Allocate(ctx context.Context, r topologymanager.Request) error {
	m.mu.Lock()
	wanted := m.wanted(r.Pod, r.Container)
	m.mu.Unlock()
	if len(wanted) > 0 {
		m.releaseInactive()
	}
	allocated := false
	for _, name := range sortedKeys(wanted) {
		fresh, err := m.allocate(ctx, r, name, wanted[name])
		if err != nil {
			return err
		}
		allocated = allocated || fresh
	}
	m.passOn(r)
	if !allocated {
		return nil
	}
	return m.save()
}

// passOn lets later containers of the pod reuse the devices of an init
// container, which has ended by then. It keeps devices of other containers from
// being reused.
func (m *Manager) passOn(r topologymanager.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, a := range m.pods[r.Pod.UID][r.Container.Name] {
		if m.reusable[r.Pod.UID] == nil {
			m.reusable[r.Pod.UID] = map[string]sets.Set[string]{}
		}
		of := m.reusable[r.Pod.UID]
		if r.Init {
			of[name] = of[name].Union(a.ids())
		} else {
			of[name] = of[name].Difference(a.ids())
		}
	}
}

// allocate gives a container n devices of a resource, and reports whether it
// did not have them yet.
func (m *Manager) allocate(ctx context.Context, r topologymanager.Request, name string, n int) (bool, error) {
	chosen, p, err := m.choose(ctx, r, name, n)
	if err != nil || chosen.Len() == 0 {
		return false, err
	}
	began := time.Now()
	call, cancel := context.WithTimeout(ctx, allocateTimeout)
	defer cancel()
	answer, err := p.client.Allocate(call, &pluginapi.AllocateRequest{
		ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: sets.List(chosen)}},
	})
	m.metrics.allocations.WithLabelValues(name).Observe(time.Since(began).Seconds())
	if err != nil {
		return false, err
	}
	if len(answer.GetContainerResponses()) == 0 {
		return false, fmt.Errorf("no containers return in allocation response %v", answer)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	a := &allocation{devices: checkpoint.DevicesPerNUMA{}, answer: answer.GetContainerResponses()[0]}
	for _, id := range sets.List(chosen) {
		for _, node := range m.nodesOf(name, id) {
			a.devices[node] = append(a.devices[node], id)
		}
	}
	m.set(r.Pod.UID, r.Container.Name, name, a)
	return true, nil
}

// nodesOf returns the NUMA nodes of a device. m.mu is held.
func (m *Manager) nodesOf(name, id string) []int64 {
	var out []int64
	if r := m.resources[name]; r != nil {
		for _, node := range r.devices[id].GetTopology().GetNodes() {
			out = append(out, node.GetID())
		}
	}
	if len(out) == 0 {
		return []int64{noNode}
	}
	return out
}

// choose returns the devices that a container gets, none if it has them, and
// the plugin that they are of.
func (m *Manager) choose(ctx context.Context, r topologymanager.Request, name string, n int) (sets.Set[string], *plugin, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	has := sets.Set[string]{}
	if a := m.pods[r.Pod.UID][r.Container.Name][name]; a != nil {
		has = a.ids()
		if has.Len() != n {
			return nil, nil, fmt.Errorf("pod %q container %q changed request for resource %q from %d to %d", r.Pod.UID, r.Container.Name, name, has.Len(), n)
		}
	}
	if r.Running {
		return nil, nil, nil // the kubelet has restarted, and the container has its devices
	}
	of := m.resources[name]
	if of == nil {
		return nil, nil, fmt.Errorf("cannot allocate unregistered device %s", name)
	}
	healthy := of.healthy()
	if healthy.Len() == 0 {
		return nil, nil, fmt.Errorf("no healthy devices present; cannot allocate unhealthy devices %s", name)
	}
	if !healthy.IsSuperset(has) {
		return nil, nil, fmt.Errorf("previously allocated devices are no longer healthy; cannot allocate unhealthy devices %s", name)
	}
	if has.Len() > 0 {
		return nil, nil, nil
	}
	chosen, p := sets.Set[string]{}, of.plugin
	take := func(from sets.Set[string]) bool {
		for _, id := range sets.List(from.Difference(chosen)) {
			if chosen.Len() == n {
				break
			}
			chosen.Insert(id)
		}
		return chosen.Len() == n
	}
	if take(m.reusable[r.Pod.UID][name].Intersection(healthy)) {
		return chosen, p, nil
	}
	available := healthy.Difference(m.used(name))
	if needed := n - chosen.Len(); available.Len() < needed {
		return nil, nil, fmt.Errorf("requested number of devices unavailable for %s. Requested: %d, Available: %d", name, needed, available.Len())
	}
	aligned, others := m.byAffinity(name, available, r.Affinity)
	from := aligned
	if aligned.Len() < n-chosen.Len() {
		take(aligned)
		from = available
	}
	preferred, err := m.preferred(ctx, of, from.Union(chosen), chosen, n)
	if err != nil {
		return nil, nil, err
	}
	if take(preferred.Intersection(from)) || take(aligned) {
		return chosen, p, nil
	}
	for _, list := range others {
		if take(list) {
			break
		}
	}
	return chosen, p, nil
}

// byAffinity returns the devices on the NUMA nodes of an affinity, and in
// others the devices on other nodes and the devices on no node. m.mu is held.
func (m *Manager) byAffinity(name string, available sets.Set[string], hint topologymanager.Hint) (aligned sets.Set[string], others []sets.Set[string]) {
	if hint.Affinity == nil {
		return sets.Set[string]{}, []sets.Set[string]{available}
	}
	aligned = sets.Set[string]{}
	elsewhere, nowhere := sets.Set[string]{}, sets.Set[string]{}
	for id := range available {
		nodes := m.nodesOf(name, id)
		switch {
		case nodes[0] == noNode:
			nowhere.Insert(id)
		case within(nodes, *hint.Affinity):
			aligned.Insert(id)
		default:
			elsewhere.Insert(id)
		}
	}
	return aligned, []sets.Set[string]{elsewhere, nowhere}
}

// within reports whether one of the nodes is in the mask.
func within(nodes []int64, mask topologymanager.Mask) bool {
	for _, n := range nodes {
		if n >= 0 && n <= topologymanager.MaxNode && mask.Has(int(n)) {
			return true
		}
	}
	return false
}

// preferred asks the plugin which of the available devices it would choose. It
// releases m.mu, which is held, during the call: only one container at a time
// gets devices.
func (m *Manager) preferred(ctx context.Context, of *resource, available, must sets.Set[string], n int) (sets.Set[string], error) {
	if !of.options.GetGetPreferredAllocationAvailable() {
		return nil, nil
	}
	p := of.plugin
	m.mu.Unlock()
	defer m.mu.Lock()
	call, cancel := context.WithTimeout(ctx, allocateTimeout)
	defer cancel()
	answer, err := p.client.GetPreferredAllocation(call, &pluginapi.PreferredAllocationRequest{
		ContainerRequests: []*pluginapi.ContainerPreferredAllocationRequest{
			{AvailableDeviceIDs: sets.List(available), MustIncludeDeviceIDs: sets.List(must), AllocationSize: int32(n)},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("device plugin GetPreferredAllocation rpc failed with err: %w", err)
	}
	if len(answer.GetContainerResponses()) == 0 {
		return nil, nil
	}
	return sets.New(answer.GetContainerResponses()[0].GetDeviceIDs()...), nil
}

// Hints implements topologymanager.Provider.
func (m *Manager) Hints(r topologymanager.Request) topologymanager.Hints {
	m.releaseInactive()
	m.mu.Lock()
	defer m.mu.Unlock()
	out := topologymanager.Hints{}
	for name, n := range m.wanted(r.Pod, r.Container) {
		reusable := m.reusable[r.Pod.UID][name]
		var has sets.Set[string]
		if a := m.pods[r.Pod.UID][r.Container.Name][name]; a != nil {
			has = a.ids()
		}
		out[name] = m.hintsFor(name, n, has, reusable)
	}
	return out
}

// PodHints implements topologymanager.Provider.
func (m *Manager) PodHints(pod *v1.Pod) topologymanager.Hints {
	m.releaseInactive()
	m.mu.Lock()
	defer m.mu.Unlock()
	names := map[string]bool{}
	for c := range podquery.Containers(&pod.Spec) {
		for name := range m.wanted(pod, c) {
			names[name] = true
		}
	}
	out := topologymanager.Hints{}
	for name := range names {
		n := topologymanager.PodNeeds(pod, func(c *v1.Container) int { return m.wanted(pod, c)[name] })
		var has sets.Set[string]
		for _, resources := range m.pods[pod.UID] {
			if a := resources[name]; a != nil {
				has = has.Union(a.ids())
			}
		}
		out[name] = m.hintsFor(name, n, has, nil)
	}
	return out
}

// hintsFor returns the sets of NUMA nodes that have n devices of a resource. has
// are the devices that are allocated already. m.mu is held.
func (m *Manager) hintsFor(name string, n int, has, reusable sets.Set[string]) []topologymanager.Hint {
	of := m.resources[name]
	if of == nil || !m.hasTopology(of) {
		return nil
	}
	available := of.healthy().Difference(m.used(name)).Union(reusable)
	if has.Len() > 0 {
		if has.Len() != n {
			return []topologymanager.Hint{}
		}
		available = has
	} else if available.Len() < n {
		return []topologymanager.Hint{}
	}
	on := func(mask topologymanager.Mask, ids sets.Set[string]) (count int) {
		for id := range ids {
			if within(m.nodesOf(name, id), mask) {
				count++
			}
		}
		return count
	}
	all := sets.KeySet(of.devices)
	// The number of sets doubles with each node, and a machine may have dozens of
	// nodes that have none of the devices.
	nodes := slices.DeleteFunc(slices.Clone(m.config.Nodes), func(node int) bool { return on(topologymanager.NewMask(node), all) == 0 })
	smallest := len(m.config.Nodes)
	hints := []topologymanager.Hint{}
	topologymanager.Masks(nodes, func(mask topologymanager.Mask) {
		if on(mask, all) >= n {
			smallest = min(smallest, mask.Count())
		}
		if on(mask, reusable) == reusable.Len() && on(mask, available) >= n {
			hints = append(hints, topologymanager.Hint{Affinity: &mask})
		}
	})
	for i := range hints {
		hints[i].Preferred = hints[i].Affinity.Count() == smallest
	}
	return hints
}

// hasTopology reports whether a device of the resource belongs to a NUMA node.
func (m *Manager) hasTopology(r *resource) bool {
	for _, d := range r.devices {
		if len(d.GetTopology().GetNodes()) > 0 {
			return true
		}
	}
	return false
}

// Devices holds the devices of one resource that a container has.
type Devices struct {
	Resource string
	IDs      map[int64][]string // by NUMA node, -1 for none
}

// ContainerDevices returns the devices of a container, sorted by resource.
func (m *Manager) ContainerDevices(uid types.UID, container string) []Devices {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Devices
	for _, name := range sortedKeys(m.pods[uid][container]) {
		out = append(out, Devices{Resource: name, IDs: m.pods[uid][container][name].devices})
	}
	return out
}

// Nodes returns the NUMA nodes of the devices, sorted.
func (d *Devices) Nodes() []int64 { return slices.Sorted(maps.Keys(d.IDs)) }
