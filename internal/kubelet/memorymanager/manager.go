// Package memorymanager guarantees containers memory of given NUMA nodes. It
// corresponds to upstream's memory manager.
//
// With the policy Static, a guaranteed pod gets its memory and huge pages from as
// few nodes as possible. A node serves either single containers alone, or
// containers together with always the same other nodes.
package memorymanager

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/amount"
	"github.com/coracle-io/coracle/internal/kubelet/allocatable"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/memorymanager/state"
	"github.com/coracle-io/coracle/internal/kubelet/statefile"
	"github.com/coracle-io/coracle/internal/kubelet/topology"
	"github.com/coracle-io/coracle/internal/kubelet/topologymanager"
)

// The policies.
const (
	None   = kubeletconfig.NoneMemoryManagerPolicy
	Static = kubeletconfig.StaticMemoryManagerPolicy
)

const maxState = 64 << 20

// Config configures a Manager.
type Config struct {
	Configuration *kubeletconfig.KubeletConfiguration
	Machine       *topology.Machine // not needed by the policy None
	Capacity      v1.ResourceList   // of the machine
	StateFile     string
	Files         files.FS
	// SourcesReady reports whether all pods are known. Active returns the pods
	// whose containers may run.
	SourcesReady func() bool
	Active       func() []*v1.Pod
	Metrics      prometheus.Registerer // nil: the metrics are not shown
}

// Manager is the memory manager. Its methods may be called from any goroutine.
type Manager struct {
	config Config
	policy string
	file   statefile.File[state.MemoryManagerCheckpoint]

	pinnings, failures prometheus.Counter

	mu     sync.Mutex // guards what follows
	blocks map[types.UID]map[string][]state.Block
}

// New validates the configuration and returns a manager that has not allocated
// anything.
func New(c Config) (*Manager, error) {
	policy := c.Configuration.MemoryManagerPolicy
	m := &Manager{
		config: c, policy: policy, blocks: map[types.UID]map[string][]state.Block{},
		file: statefile.File[state.MemoryManagerCheckpoint]{
			Manager: "memory manager", Path: c.StateFile, MaxSize: maxState, Files: c.Files, Unmarshal: state.Unmarshal, Dispensable: policy == None,
		},
		pinnings: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_memory_manager_pinning_requests_total", Help: "[ALPHA] The number of memory pages allocations which required pinning."}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_memory_manager_pinning_errors_total", Help: "[ALPHA] The number of memory pages allocations which required pinning that failed."}),
	}
	if c.Metrics != nil {
		c.Metrics.MustRegister(m.pinnings, m.failures)
	}
	if policy != Static {
		return m, nil
	}
	return m, checkReserved(c.Configuration, c.Capacity, c.Machine.NodeIDs())
}

// checkReserved returns an error unless reservedMemory adds up to what the system
// keeps of the whole machine.
func checkReserved(c *kubeletconfig.KubeletConfiguration, capacity v1.ResourceList, nodes []int) error {
	if err := topologymanager.CheckNodes(nodes); err != nil {
		return fmt.Errorf("memoryManagerPolicy %s: %w", Static, err)
	}
	sums := v1.ResourceList{}
	for _, r := range c.ReservedMemory {
		if !slices.Contains(nodes, int(r.NumaNode)) {
			return fmt.Errorf("the reserved memory configuration references a NUMA node %d that does not exist on this machine", r.NumaNode)
		}
		for name, q := range r.Limits {
			sum := sums[name]
			sum.Add(q)
			sums[name] = sum
		}
	}
	reserved, err := allocatable.Reserved(c, capacity)
	if err != nil {
		return err
	}
	for name, q := range reserved {
		if kind(name) {
			if sum := sums[name]; sum.Cmp(q) != 0 {
				return unequal(name, sum, q)
			}
		}
	}
	for name, sum := range sums {
		if q := reserved[name]; sum.Cmp(q) != 0 {
			return unequal(name, sum, q)
		}
	}
	if sum := sums[v1.ResourceMemory]; sum.Sign() <= 0 {
		return errors.New("[memorymanager] you should specify the system reserved memory")
	}
	return nil
}

func unequal(name v1.ResourceName, sum, reserved resource.Quantity) error {
	return fmt.Errorf("the total amount %q of type %q is not equal to the value %q determined by Node Allocatable feature", sum.String(), name, reserved.String())
}

// kind reports whether a resource is memory or huge pages.
func kind(name v1.ResourceName) bool {
	return name == v1.ResourceMemory || len(name) > len(v1.ResourceHugePagesPrefix) && name[:len(v1.ResourceHugePagesPrefix)] == v1.ResourceHugePagesPrefix
}

// empty returns the memory of the machine without any container.
func (m *Manager) empty() state.NUMANodeMap {
	reserved := map[int]map[v1.ResourceName]uint64{}
	for _, r := range m.config.Configuration.ReservedMemory {
		of := map[v1.ResourceName]uint64{}
		for name, q := range r.Limits {
			of[name] = uint64(max(amount.Value(q), 0))
		}
		reserved[int(r.NumaNode)] = of
	}
	table := func(total, taken, reserved uint64) *state.MemoryTable {
		left := total - min(total, taken)
		left -= min(left, reserved)
		return &state.MemoryTable{TotalMemSize: total, SystemReserved: reserved, Allocatable: left, Free: left}
	}
	out := state.NUMANodeMap{}
	for _, n := range m.config.Machine.Nodes {
		s := &state.NUMANodeState{MemoryMap: map[v1.ResourceName]*state.MemoryTable{}, Cells: []int{n.ID}}
		pages := uint64(0)
		for size, count := range n.HugePages {
			name := v1.ResourceName(v1.ResourceHugePagesPrefix + resource.NewQuantity(int64(size), resource.BinarySI).String())
			s.MemoryMap[name] = table(size*count, 0, reserved[n.ID][name])
			pages += size * count
		}
		s.MemoryMap[v1.ResourceMemory] = table(n.MemoryBytes, pages, reserved[n.ID][v1.ResourceMemory])
		out[n.ID] = s
	}
	return out
}

// machine returns the memory of the machine with what containers have. m.mu is
// held.
func (m *Manager) machine() state.NUMANodeMap {
	out := m.empty()
	for _, uid := range slices.Sorted(maps.Keys(m.blocks)) {
		for _, name := range slices.Sorted(maps.Keys(m.blocks[uid])) {
			for _, b := range m.blocks[uid][name] {
				reserve(out, b)
			}
		}
	}
	return out
}

// reserve takes a block from the nodes of its affinity.
func reserve(machine state.NUMANodeMap, b state.Block) {
	size := b.Size
	for _, id := range b.NUMAAffinity {
		n := machine[id]
		if n == nil {
			continue
		}
		n.NumberOfAssignments++
		n.Cells = b.NUMAAffinity
		if t := n.MemoryMap[b.Type]; t != nil {
			part := min(size, t.Free)
			t.Free, t.Reserved, size = t.Free-part, t.Reserved+part, size-part
		}
	}
}

// Recover reads what an earlier kubelet has allocated. A file that is damaged, of
// another policy or of another machine is an error.
func (m *Manager) Recover() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.file.Restore(m.restore); err != nil {
		return err
	}
	return m.save()
}

// restore takes over the state of an earlier kubelet, nil if there is none. m.mu
// is held.
func (m *Manager) restore(kept *state.MemoryManagerCheckpoint) error {
	if kept == nil {
		return nil
	}
	if kept.PolicyName != m.policy {
		return fmt.Errorf("[memorymanager] configured policy %q differs from state checkpoint policy %q", m.policy, kept.PolicyName)
	}
	for uid, containers := range kept.Entries {
		m.blocks[types.UID(uid)] = containers
	}
	if m.policy != Static {
		return nil
	}
	if len(kept.MachineState) == 0 {
		if len(kept.Entries) > 0 {
			return errors.New("[memorymanager] machine state can not be empty when it has memory assignments")
		}
		return nil
	}
	if err := m.checkBlocks(); err != nil {
		return err
	}
	if !same(kept.MachineState, m.machine()) {
		return errors.New("[memorymanager] the expected machine state is different from the real one")
	}
	return nil
}

// checkBlocks returns an error if a container has memory that the machine does not
// have. m.mu is held.
func (m *Manager) checkBlocks() error {
	machine := m.empty()
	for uid, containers := range m.blocks {
		for name, blocks := range containers {
			for _, b := range blocks {
				for _, id := range b.NUMAAffinity {
					if machine[id] == nil {
						return fmt.Errorf("[memorymanager] (pod: %s, container: %s) the memory assignment uses the NUMA that does not exist", uid, name)
					}
					if table(machine, id, b.Type) == nil {
						return fmt.Errorf("[memorymanager] (pod: %s, container: %s) the memory assignment uses memory resource that does not exist", uid, name)
					}
				}
			}
		}
	}
	return nil
}

// same reports whether two states have the same memory and reservations.
func same(a, b state.NUMANodeMap) bool {
	type total struct{ size, system, reserved uint64 }
	sums := func(machine state.NUMANodeMap) map[v1.ResourceName]map[int]total {
		out := map[v1.ResourceName]map[int]total{}
		for id, n := range machine {
			for name, t := range n.MemoryMap {
				if out[name] == nil {
					out[name] = map[int]total{}
				}
				out[name][id] = total{t.TotalMemSize, t.SystemReserved, 0}
				all := out[name][-1]
				all.reserved += t.Reserved
				out[name][-1] = all
			}
		}
		return out
	}
	return reflect.DeepEqual(sums(a), sums(b))
}

// save writes the state. m.mu is held.
func (m *Manager) save() error {
	kept := state.MemoryManagerCheckpoint{PolicyName: m.policy, MachineState: state.NUMANodeMap{}, Entries: state.ContainerMemoryAssignments{}}
	if m.policy == Static {
		kept.MachineState = m.machine()
	}
	for uid, containers := range m.blocks {
		kept.Entries[string(uid)] = containers
	}
	return m.file.Save(&kept)
}

// Nodes returns the NUMA nodes of which a container has its memory, none for
// any.
func (m *Manager) Nodes(uid types.UID, container string) topologymanager.Mask {
	m.mu.Lock()
	defer m.mu.Unlock()
	var nodes topologymanager.Mask
	for _, b := range m.blocks[uid][container] {
		nodes |= topologymanager.NewMask(b.NUMAAffinity...)
	}
	return nodes
}

// Blocks returns the memory that a container has.
func (m *Manager) Blocks(uid types.UID, container string) []state.Block {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.blocks[uid][container])
}

// Allocatable returns the memory that containers can have, by NUMA node.
func (m *Manager) Allocatable() []state.Block {
	if m.policy != Static {
		return nil
	}
	var out []state.Block
	for id, n := range m.empty() {
		for name, t := range n.MemoryMap {
			if t.Allocatable > 0 {
				out = append(out, state.Block{NUMAAffinity: []int{id}, Type: name, Size: t.Allocatable})
			}
		}
	}
	slices.SortFunc(out, func(a, b state.Block) int {
		return cmp.Or(slices.Compare(a.NUMAAffinity, b.NUMAAffinity), cmp.Compare(a.Type, b.Type))
	})
	return out
}

// Release frees the memory of a pod.
func (m *Manager) Release(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.release(uid)
}

// release frees the memory of a pod. m.mu is held.
func (m *Manager) release(uid types.UID) {
	if len(m.blocks[uid]) == 0 {
		return
	}
	delete(m.blocks, uid)
	if err := m.save(); err != nil { // the next allocation tries again
		klog.Background().Error(err, "The memory of a pod that has ended is not free for the next kubelet", "podUID", uid)
	}
}

// releaseInactive frees the memory of pods that are gone.
func (m *Manager) releaseInactive() {
	if m.config.SourcesReady() {
		topologymanager.ReleaseInactive(&m.mu, m.blocks, m.config.Active, m.release)
	}
}
