package cpumanager

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"k8s.io/utils/cpuset"

	"github.com/coracle-io/coracle/internal/kubelet/topology"
)

// level is a level of the machine's topology: it returns the socket, NUMA node,
// cache or core of a CPU.
type level func(topology.CPU) int

func socket(c topology.CPU) int { return c.Socket }
func numa(c topology.CPU) int   { return c.Node }
func cache(c topology.CPU) int  { return c.Cache }
func core(c topology.CPU) int   { return c.Core }

// assignment chooses CPUs. It takes whole sockets, NUMA nodes and cores first,
// so that a container shares as little as possible with others.
type assignment struct {
	cpus    []topology.CPU // of the machine
	byID    map[int]topology.CPU
	free    cpuset.CPUSet // that can be chosen
	needed  int           // that are still to be chosen
	chosen  cpuset.CPUSet
	outer   []level // sockets and NUMA nodes, the larger ones first
	threads int     // of a core
	options Options
}

func newAssignment(machine *topology.Machine, free cpuset.CPUSet, n int, options Options) *assignment {
	a := &assignment{
		cpus: machine.CPUs, byID: map[int]topology.CPU{}, free: free, needed: n, options: options, outer: []level{socket, numa}, threads: threads(machine),
	}
	for _, c := range machine.CPUs {
		a.byID[c.ID] = c
	}
	if count(machine, socket) >= len(machine.Nodes) {
		a.outer = []level{numa, socket}
	}
	return a
}

// count returns how many sockets, nodes, caches or cores a machine has.
func count(machine *topology.Machine, of level) int {
	ids := map[int]bool{}
	for _, c := range machine.CPUs {
		ids[of(c)] = true
	}
	return len(ids)
}

// threads returns the number of CPUs of a core.
func threads(machine *topology.Machine) int {
	return max(len(machine.CPUs)/max(count(machine, core), 1), 1)
}

// size returns how many CPUs of the machine belong to the same part as one of
// the set.
func (a *assignment) size(set cpuset.CPUSet, of level) int {
	id, n := of(a.byID[set.List()[0]]), 0
	for _, c := range a.cpus {
		if of(c) == id {
			n++
		}
	}
	return n
}

// groups divides a set of CPUs by the levels. Parts with fewer CPUs come first,
// then those with lower ids.
func (a *assignment) groups(of cpuset.CPUSet, levels ...level) []cpuset.CPUSet {
	if len(levels) == 0 {
		return []cpuset.CPUSet{of}
	}
	parts := map[int][]int{}
	for _, id := range of.List() {
		part := levels[0](a.byID[id])
		parts[part] = append(parts[part], id)
	}
	ids := make([]int, 0, len(parts))
	for part := range parts {
		ids = append(ids, part)
	}
	slices.SortFunc(ids, func(x, y int) int {
		if d := len(parts[x]) - len(parts[y]); d != 0 {
			return d
		}
		return x - y
	})
	var out []cpuset.CPUSet
	for _, part := range ids {
		out = append(out, a.groups(cpuset.New(parts[part]...), levels[1:]...)...)
	}
	return out
}

func (a *assignment) take(set cpuset.CPUSet) {
	a.chosen, a.free, a.needed = a.chosen.Union(set), a.free.Difference(set), a.needed-set.Size()
}

// takeWhole takes the parts of the last level that are free as a whole, while
// all of their CPUs are needed.
func (a *assignment) takeWhole(levels ...level) {
	for _, set := range a.groups(a.free, levels...) {
		if a.needed >= set.Size() && a.needed > 0 && set.Size() == a.size(set, levels[len(levels)-1]) {
			a.take(set)
		}
	}
}

// takeSingle takes single CPUs of a set in the given order, of each part those
// with the lowest ids.
func (a *assignment) takeSingle(from cpuset.CPUSet, levels ...level) {
	for _, set := range a.groups(from, levels...) {
		for _, id := range set.List() {
			if a.needed == 0 {
				return
			}
			a.take(cpuset.New(id))
		}
	}
}

// takeCaches takes CPUs that share a cache with as few others as possible: whole
// caches, and then the rest from one cache that has it on as few cores as it needs.
func (a *assignment) takeCaches() {
	levels := append(slices.Clone(a.outer), cache)
	a.takeWhole(levels...)
	for _, set := range a.groups(a.free, levels...) {
		if part := a.fit(set); a.needed > 0 && part.Size() == a.needed {
			a.take(part)
		}
	}
}

// fit returns the CPUs of a set that are needed, from the cores with the lowest ids,
// as few as could have so many CPUs. It returns fewer CPUs if these cores have fewer.
func (a *assignment) fit(set cpuset.CPUSet) cpuset.CPUSet {
	byCore := map[int][]int{}
	for _, id := range set.List() {
		byCore[core(a.byID[id])] = append(byCore[core(a.byID[id])], id)
	}
	var out []int
	for i, c := range slices.Sorted(maps.Keys(byCore)) {
		if i < (a.needed+a.threads-1)/a.threads {
			out = append(out, byCore[c][:min(len(byCore[c]), a.needed-len(out))]...)
		}
	}
	return cpuset.New(out...)
}

// packed returns n of the free CPUs on as few sockets, NUMA nodes and cores as
// possible.
func packed(machine *topology.Machine, free cpuset.CPUSet, n int, options Options) (cpuset.CPUSet, error) {
	a := newAssignment(machine, free, n, options)
	if free.Size() < n {
		return cpuset.New(), fmt.Errorf("not enough cpus available to satisfy request: requested=%d, available=%d", n, free.Size())
	}
	a.takeWhole(a.outer[0])
	a.takeWhole(a.outer...)
	if options.PreferAlignByUncoreCache && a.needed > 0 {
		a.takeCaches()
	}
	cores := append(slices.Clone(a.outer), core)
	if options.DistributeAcrossCores {
		a.takeSingle(a.free, a.outer...)
	} else {
		a.takeWhole(cores...)
		a.takeSingle(a.free, cores...)
	}
	return a.chosen, nil
}

// maxDistributed is the number of NUMA nodes up to which CPUs are distributed
// evenly. The number of sets of nodes doubles with each.
const maxDistributed = 16

// distributed returns n of the free CPUs, in groups of a size, evenly from as
// few NUMA nodes as possible. Of several sets of nodes it takes the one that
// leaves the free CPUs of all nodes most even.
func distributed(machine *topology.Machine, free cpuset.CPUSet, n, size int, options Options) (cpuset.CPUSet, error) {
	a := newAssignment(machine, free, n, options)
	on := map[int]cpuset.CPUSet{}
	var nodes []int
	for _, set := range a.groups(free, numa) {
		node := a.byID[set.List()[0]].Node
		on[node], nodes = set, append(nodes, node)
	}
	if n%size != 0 || free.Size() < n || len(nodes) > maxDistributed {
		return packed(machine, free, n, options)
	}
	for k := 1; k <= len(nodes); k++ {
		best, shares := math.Inf(1), map[int]int(nil)
		subsets(nodes, k, func(chosen []int) {
			of, balance, ok := share(on, chosen, n, size)
			if ok && balance < best {
				best, shares = balance, of
			}
		})
		if shares == nil {
			continue
		}
		result := cpuset.New()
		for _, node := range nodes {
			part, err := packed(machine, on[node], shares[node], options)
			if err != nil {
				return result, err
			}
			result = result.Union(part)
		}
		return result, nil
	}
	return packed(machine, free, n, options)
}

// share divides n CPUs among the chosen nodes. What cannot be divided evenly
// goes, a group at a time, to the nodes that have most left. It returns how
// uneven the free CPUs of all nodes are then.
func share(on map[int]cpuset.CPUSet, chosen []int, n, size int) (shares map[int]int, balance float64, ok bool) {
	even := n / len(chosen) / size * size
	left := map[int]int{}
	for node, set := range on {
		left[node] = set.Size()
	}
	shares = map[int]int{}
	for _, node := range chosen {
		if left[node] < even || even == 0 {
			return nil, 0, false
		}
		left[node] -= even
		shares[node] = even
	}
	for rest := n - even*len(chosen); rest > 0; rest -= size {
		most := -1
		for _, node := range chosen {
			if left[node] >= size && (most < 0 || left[node] > left[most]) {
				most = node
			}
		}
		if most < 0 {
			return nil, 0, false
		}
		left[most] -= size
		shares[most] += size
	}
	var sum, squares float64
	for _, l := range left {
		sum += float64(l)
	}
	mean := sum / float64(len(left))
	for _, l := range left {
		squares += (float64(l) - mean) * (float64(l) - mean)
	}
	return shares, math.Sqrt(squares / float64(len(left))), true
}

// subsets calls visit with every subset of k elements. The slice is only valid
// during the call.
func subsets(of []int, k int, visit func([]int)) {
	var next func(from int, chosen []int)
	next = func(from int, chosen []int) {
		if len(chosen) == k {
			visit(chosen)
			return
		}
		for i := from; i+k-len(chosen) <= len(of); i++ {
			next(i+1, append(chosen, of[i]))
		}
	}
	next(0, make([]int, 0, k))
}
