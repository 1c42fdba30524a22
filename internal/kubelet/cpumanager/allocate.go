package cpumanager

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/coracle-io/coracle/internal/kubelet/spec"
	"github.com/coracle-io/coracle/internal/kubelet/topologymanager"
	"github.com/coracle-io/coracle/internal/podquery"
)

// wants returns how many CPUs of its own a container gets.
func (m *Manager) wants(pod *v1.Pod, c *v1.Container) int {
	return spec.OwnCPUs(m.config.Configuration, pod, c)
}

// Needs implements topologymanager.Provider.
func (m *Manager) Needs(pod *v1.Pod) bool {
	for c := range podquery.Containers(&pod.Spec) {
		if m.wants(pod, c) > 0 {
			return true
		}
	}
	return false
}

// alignmentError is why a container cannot have whole cores.
func alignmentError(format string, arguments ...any) error {
	return &topologymanager.AdmissionError{Reason: "SMTAlignmentError", Message: "SMT Alignment Error: " + fmt.Sprintf(format, arguments...)}
}

// Allocate gives a container CPUs of its own, if it wants some. It implements
// topologymanager.Provider.
func (m *Manager) Allocate(_ context.Context, r topologymanager.Request) (err error) {
	n := m.wants(r.Pod, r.Container)
	if n == 0 {
		return nil
	}
	m.metrics.pinnings.Inc()
	defer func() {
		if err != nil {
			m.metrics.failures.Inc()
		}
		if m.options.FullPCPUsOnly {
			m.metrics.cores.Count(err)
		}
	}()
	m.releaseInactive()
	m.mu.Lock()
	defer m.mu.Unlock()
	if set, has := m.assigned[r.Pod.UID][r.Container.Name]; has {
		m.passOn(r, set)
		return nil
	}
	if m.options.FullPCPUsOnly {
		size := threads(m.config.Machine)
		if n%size != 0 {
			return alignmentError("requested %d cpus not multiple cpus per core = %d", n, size)
		}
		if free := m.available(r).Size(); n > free {
			return alignmentError("not enough free physical CPUs: available physical CPUs = %d, requested CPUs = %d, CPUs per core = %d", free, n, size)
		}
	}
	set, err := m.assign(r, n)
	if err != nil {
		return err
	}
	before := m.shared
	m.shared = m.shared.Difference(set)
	m.set(r.Pod.UID, r.Container.Name, set)
	if err := m.save(); err != nil {
		m.shared = before
		delete(m.assigned[r.Pod.UID], r.Container.Name)
		return err
	}
	if m.oneCache(set) {
		m.metrics.caches.Done.Inc()
	}
	m.passOn(r, set)
	m.wake()
	return nil
}

// oneCache reports whether the CPUs share a cache.
func (m *Manager) oneCache(set cpuset.CPUSet) bool {
	ids := map[int]bool{}
	for _, c := range m.config.Machine.CPUs {
		if set.Contains(c.ID) {
			ids[c.Cache] = true
		}
	}
	return len(ids) == 1
}

// passOn lets later containers of the pod reuse the CPUs of an init container,
// which has ended by then. It keeps CPUs of other containers from being reused.
// m.mu is held.
func (m *Manager) passOn(r topologymanager.Request, set cpuset.CPUSet) {
	if r.Init {
		m.reusable[r.Pod.UID] = m.reusable[r.Pod.UID].Union(set)
	} else {
		m.reusable[r.Pod.UID] = m.reusable[r.Pod.UID].Difference(set)
	}
}

// available returns the CPUs that the container could have: with full-pcpus-only,
// those of cores that are available as a whole. m.mu is held.
func (m *Manager) available(r topologymanager.Request) cpuset.CPUSet {
	free := m.shared.Difference(m.reserved).Union(m.reusable[r.Pod.UID])
	if !m.options.FullPCPUsOnly {
		return free
	}
	partial := map[int]bool{}
	for _, c := range m.config.Machine.CPUs {
		if !free.Contains(c.ID) {
			partial[c.Core] = true
		}
	}
	var ids []int
	for _, c := range m.config.Machine.CPUs {
		if !partial[c.Core] {
			ids = append(ids, c.ID)
		}
	}
	return cpuset.New(ids...)
}

// assign chooses n CPUs. It prefers the CPUs of the affinity, and CPUs that an
// init container of the pod has had. m.mu is held.
func (m *Manager) assign(r topologymanager.Request, n int) (cpuset.CPUSet, error) {
	result := cpuset.New()
	free := m.available(r)
	if r.Affinity.Affinity != nil {
		aligned := free.Intersection(m.on(*r.Affinity.Affinity))
		take := min(n, aligned.Size())
		set, err := m.reuseFirst(r, aligned, take)
		if err != nil {
			return result, err
		}
		result = set
	}
	rest, err := m.reuseFirst(r, free.Difference(result), n-result.Size())
	if err != nil {
		return cpuset.New(), err
	}
	return result.Union(rest), nil
}

// reuseFirst chooses n of the free CPUs, at first those that the pod has
// already. m.mu is held.
func (m *Manager) reuseFirst(r topologymanager.Request, free cpuset.CPUSet, n int) (cpuset.CPUSet, error) {
	again := m.reusable[r.Pod.UID].Intersection(free)
	if take := min(n, again.Size()); take > 0 {
		set, err := m.choose(again, take)
		if err != nil {
			return cpuset.New(), err
		}
		rest, err := m.choose(free.Difference(again), n-take)
		return set.Union(rest), err
	}
	return m.choose(free, n)
}

// on returns the CPUs on NUMA nodes, or on the sockets of these nodes if they are
// to be aligned by socket.
func (m *Manager) on(nodes topologymanager.Mask) cpuset.CPUSet {
	sockets := map[int]bool{}
	var ids []int
	for _, c := range m.config.Machine.CPUs {
		if nodes.Has(c.Node) {
			ids = append(ids, c.ID)
			sockets[c.Socket] = true
		}
	}
	if m.options.AlignBySocket {
		for _, c := range m.config.Machine.CPUs {
			if sockets[c.Socket] {
				ids = append(ids, c.ID)
			}
		}
	}
	return cpuset.New(ids...)
}

// Hints implements topologymanager.Provider.
func (m *Manager) Hints(r topologymanager.Request) topologymanager.Hints {
	n := m.wants(r.Pod, r.Container)
	if n == 0 {
		return nil
	}
	m.releaseInactive()
	m.mu.Lock()
	defer m.mu.Unlock()
	if set, has := m.assigned[r.Pod.UID][r.Container.Name]; has {
		if set.Size() != n {
			return noHints()
		}
		return m.hints(n, set, cpuset.New())
	}
	return m.hints(n, m.available(r), m.reusable[r.Pod.UID])
}

// noHints says that no set of NUMA nodes has the CPUs.
func noHints() topologymanager.Hints {
	return topologymanager.Hints{string(v1.ResourceCPU): []topologymanager.Hint{}}
}

// PodHints implements topologymanager.Provider.
func (m *Manager) PodHints(pod *v1.Pod) topologymanager.Hints {
	n := topologymanager.PodNeeds(pod, func(c *v1.Container) int { return m.wants(pod, c) })
	if n == 0 {
		return nil
	}
	m.releaseInactive()
	m.mu.Lock()
	defer m.mu.Unlock()
	has := cpuset.New()
	for c := range podquery.Containers(&pod.Spec) {
		if set, ok := m.assigned[pod.UID][c.Name]; ok {
			if set.Size() != m.wants(pod, c) {
				return noHints()
			}
			has = has.Union(set)
		}
	}
	if has.Size() == n {
		return m.hints(n, has, cpuset.New())
	}
	// A kubelet that was killed while it admitted the pod has left some containers
	// without CPUs. They get theirs from the nodes of the others.
	return m.hints(n, m.available(topologymanager.Request{Pod: pod}).Union(has), m.reusable[pod.UID].Union(has))
}

// hints returns the sets of NUMA nodes that have n of the CPUs, and all of the
// reusable ones.
func (m *Manager) hints(n int, from, reusable cpuset.CPUSet) topologymanager.Hints {
	hints := []topologymanager.Hint{}
	all := m.config.Machine
	smallest := len(all.Nodes)
	count := func(mask topologymanager.Mask, of cpuset.CPUSet) (n int) {
		for _, c := range all.CPUs {
			if mask.Has(c.Node) && of.Contains(c.ID) {
				n++
			}
		}
		return n
	}
	topologymanager.Masks(all.NodeIDs(), func(mask topologymanager.Mask) {
		if count(mask, all.All()) >= n {
			smallest = min(smallest, mask.Count())
		}
		if count(mask, reusable) == reusable.Size() && count(mask, from) >= n {
			hints = append(hints, topologymanager.Hint{Affinity: &mask})
		}
	})
	for i := range hints {
		hints[i].Preferred = hints[i].Affinity.Count() == smallest || m.options.AlignBySocket && m.oneSocket(*hints[i].Affinity, n)
	}
	return topologymanager.Hints{string(v1.ResourceCPU): hints}
}

// oneSocket reports whether the NUMA nodes are on no more sockets than n CPUs
// need.
func (m *Manager) oneSocket(nodes topologymanager.Mask, n int) bool {
	sockets, all := map[int]bool{}, count(m.config.Machine, socket)
	for _, c := range m.config.Machine.CPUs {
		if nodes.Has(c.Node) {
			sockets[c.Socket] = true
		}
	}
	of := max(len(m.config.Machine.CPUs)/max(all, 1), 1)
	return len(sockets) <= (n+of-1)/of
}
