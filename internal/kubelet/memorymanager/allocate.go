package memorymanager

import (
	"context"
	"errors"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/coracle-io/coracle/internal/amount"
	"github.com/coracle-io/coracle/internal/kubelet/memorymanager/state"
	"github.com/coracle-io/coracle/internal/kubelet/topologymanager"
	"github.com/coracle-io/coracle/internal/podquery"
)

// wants returns the memory and huge pages of a container that are guaranteed, in
// bytes.
func (m *Manager) wants(pod *v1.Pod, c *v1.Container) map[v1.ResourceName]uint64 {
	if m.policy != Static || podquery.QOSClass(pod) != v1.PodQOSGuaranteed || resourcehelper.IsPodLevelResourcesSet(pod) {
		return nil
	}
	out := map[v1.ResourceName]uint64{}
	for name, q := range c.Resources.Requests {
		if n := amount.Value(q); kind(name) && n > 0 {
			out[name] = uint64(n)
		}
	}
	return out
}

// Needs implements topologymanager.Provider.
func (m *Manager) Needs(pod *v1.Pod) bool {
	for c := range podquery.Containers(&pod.Spec) {
		if len(m.wants(pod, c)) > 0 {
			return true
		}
	}
	return false
}

// Allocate guarantees a container its memory. It implements
// topologymanager.Provider.
func (m *Manager) Allocate(_ context.Context, r topologymanager.Request) (err error) {
	wanted := m.wants(r.Pod, r.Container)
	if len(wanted) == 0 {
		return nil
	}
	m.pinnings.Inc()
	defer func() {
		if err != nil {
			m.failures.Inc()
		}
	}()
	m.releaseInactive()
	m.mu.Lock()
	defer m.mu.Unlock()
	uid, name := r.Pod.UID, r.Container.Name
	if _, has := m.blocks[uid][name]; has {
		return nil
	}
	machine := m.machine()
	hint := r.Affinity
	if hint.Affinity == nil {
		best, ok := m.best(machine, r.Pod, wanted, 0)
		if !ok {
			return errors.New("[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available")
		}
		if !best.Preferred && hint.Preferred {
			return errors.New("[memorymanager] failed to find the default preferred hint")
		}
		hint = best
	}
	if !m.satisfies(machine, r.Pod, *hint.Affinity, wanted) {
		extended, ok := m.best(machine, r.Pod, wanted, *hint.Affinity)
		if !ok {
			return errors.New("[memorymanager] failed to find NUMA nodes to extend the current topology hint")
		}
		if !extended.Preferred && hint.Preferred {
			return errors.New("[memorymanager] failed to find the extended preferred hint")
		}
		hint = extended
	}
	// Of a group of nodes, the topology manager may have chosen the one of the CPUs.
	if hint.Affinity.Count() > 1 && !groups(machine, *hint.Affinity) {
		return errors.New("[memorymanager] preferred hint violates NUMA node allocation")
	}
	var blocks []state.Block
	for _, kind := range slices.Sorted(maps.Keys(wanted)) {
		b := state.Block{NUMAAffinity: hint.Affinity.Nodes(), Type: kind, Size: wanted[kind]}
		m.reuse(r.Pod, b)
		blocks = append(blocks, b)
	}
	if m.blocks[uid] == nil {
		m.blocks[uid] = map[string][]state.Block{}
	}
	m.blocks[uid][name] = blocks
	return m.save()
}

// left calls visit with the memory of a kind on given nodes that the init
// containers of a pod have. They have ended by the time that later containers
// start, sidecars have not. m.mu is held.
func (m *Manager) left(pod *v1.Pod, nodes topologymanager.Mask, kind v1.ResourceName, visit func(*state.Block)) {
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if podquery.IsSidecar(c) {
			continue
		}
		blocks := m.blocks[pod.UID][c.Name]
		for j := range blocks {
			if blocks[j].Type == kind && topologymanager.NewMask(blocks[j].NUMAAffinity...) == nodes {
				visit(&blocks[j])
			}
		}
	}
}

// reuse moves memory from the init containers of a pod to the container that
// gets the block, so that it counts once. m.mu is held.
func (m *Manager) reuse(pod *v1.Pod, block state.Block) {
	size := block.Size
	m.left(pod, topologymanager.NewMask(block.NUMAAffinity...), block.Type, func(b *state.Block) {
		part := min(size, b.Size)
		b.Size -= part
		size -= part
	})
}

// satisfies reports whether the nodes have enough free memory. m.mu is held.
func (m *Manager) satisfies(machine state.NUMANodeMap, pod *v1.Pod, nodes topologymanager.Mask, wanted map[v1.ResourceName]uint64) bool {
	for kind, size := range wanted {
		free := uint64(0)
		m.left(pod, nodes, kind, func(b *state.Block) { free += b.Size })
		for _, id := range nodes.Nodes() {
			if t := table(machine, id, kind); t != nil {
				free += t.Free
			}
		}
		if free < size {
			return false
		}
	}
	return true
}

// table returns the memory of a kind on a node, nil if there is none.
func table(machine state.NUMANodeMap, id int, kind v1.ResourceName) *state.MemoryTable {
	if n := machine[id]; n != nil {
		return n.MemoryMap[kind]
	}
	return nil
}

// groups reports whether the nodes may serve a container together: each of them
// is unused or already grouped with exactly these nodes.
func groups(machine state.NUMANodeMap, nodes topologymanager.Mask) bool {
	for _, id := range nodes.Nodes() {
		n := machine[id]
		if n == nil || n.NumberOfAssignments > 0 && topologymanager.NewMask(n.Cells...) != nodes {
			return false
		}
	}
	return true
}

// best returns the best hint that includes the given nodes, and whether there is
// one. m.mu is held.
func (m *Manager) best(machine state.NUMANodeMap, pod *v1.Pod, wanted map[v1.ResourceName]uint64, including topologymanager.Mask) (best topologymanager.Hint, ok bool) {
	for _, h := range m.hints(machine, pod, wanted) {
		if *h.Affinity&including != including {
			continue
		}
		if !ok || h.Preferred && !best.Preferred || h.Preferred == best.Preferred && h.Affinity.Narrower(*best.Affinity) {
			best, ok = h, true
		}
	}
	return best, ok
}

// hints returns the sets of NUMA nodes that have enough free memory. Hints with
// the fewest nodes that could have enough memory are preferred. m.mu is held.
func (m *Manager) hints(machine state.NUMANodeMap, pod *v1.Pod, wanted map[v1.ResourceName]uint64) []topologymanager.Hint {
	ids := m.config.Machine.NodeIDs()
	smallest := len(ids)
	hints := []topologymanager.Hint{}
	topologymanager.Masks(ids, func(nodes topologymanager.Mask) {
		for kind, size := range wanted {
			room := uint64(0)
			for _, id := range nodes.Nodes() {
				if t := table(machine, id, kind); t != nil {
					room += t.Allocatable
				}
			}
			if room < size {
				return
			}
		}
		smallest = min(smallest, nodes.Count())
		if groups(machine, nodes) && m.satisfies(machine, pod, nodes, wanted) {
			hints = append(hints, topologymanager.Hint{Affinity: &nodes})
		}
	})
	for i := range hints {
		hints[i].Preferred = hints[i].Affinity.Count() == smallest
	}
	return hints
}

// Hints implements topologymanager.Provider.
func (m *Manager) Hints(r topologymanager.Request) topologymanager.Hints {
	return m.hintsOf(r.Pod, m.wants(r.Pod, r.Container), func() []state.Block { return m.blocks[r.Pod.UID][r.Container.Name] })
}

// PodHints implements topologymanager.Provider.
func (m *Manager) PodHints(pod *v1.Pod) topologymanager.Hints {
	kinds := map[v1.ResourceName]bool{}
	for c := range podquery.Containers(&pod.Spec) {
		for kind := range m.wants(pod, c) {
			kinds[kind] = true
		}
	}
	wanted := map[v1.ResourceName]uint64{}
	for kind := range kinds {
		wanted[kind] = uint64(topologymanager.PodNeeds(pod, func(c *v1.Container) int { return int(m.wants(pod, c)[kind]) }))
	}
	return m.hintsOf(pod, wanted, func() (all []state.Block) {
		for _, blocks := range m.blocks[pod.UID] {
			all = append(all, blocks...)
		}
		return all
	})
}

// hintsOf returns the hints for a pod or a container. has is called with the
// lock held. If it returns memory that the pod or container has already, the
// nodes of that memory are the only hint.
func (m *Manager) hintsOf(pod *v1.Pod, wanted map[v1.ResourceName]uint64, has func() []state.Block) topologymanager.Hints {
	if len(wanted) == 0 {
		return nil
	}
	m.releaseInactive()
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []topologymanager.Hint
	if blocks := has(); len(blocks) > 0 {
		var nodes topologymanager.Mask
		for _, b := range blocks {
			nodes |= topologymanager.NewMask(b.NUMAAffinity...)
		}
		list = []topologymanager.Hint{{Affinity: &nodes, Preferred: true}}
	} else {
		list = m.hints(m.machine(), pod, wanted)
	}
	out := topologymanager.Hints{}
	for kind := range wanted {
		out[string(kind)] = list
	}
	return out
}
