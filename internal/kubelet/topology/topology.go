// Package topology reads which CPUs and how much memory the NUMA nodes of the
// machine have. Upstream takes this information from cAdvisor.
package topology

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"
)

// Bounds of a machine. They are the kernel's own.
const (
	maxCPUs  = 8192
	maxNodes = 1024
	maxFile  = 64 << 10
)

// CPU is a logical CPU.
type CPU struct {
	ID     int
	Core   int // the lowest id of the CPUs of the core
	Socket int
	Node   int // NUMA node
	Cache  int // the lowest id of the CPUs that share the last level of cache
}

// Node is a NUMA node.
type Node struct {
	ID          int
	MemoryBytes uint64
	HugePages   map[uint64]uint64 // count by size in bytes
	Distances   []int             // to the nodes in the order of their ids
}

// Machine is the topology of a machine.
type Machine struct {
	CPUs  []CPU  // by id
	Nodes []Node // by id
}

// NodeIDs returns the ids of the NUMA nodes.
func (m *Machine) NodeIDs() []int {
	var ids []int
	for _, n := range m.Nodes {
		ids = append(ids, n.ID)
	}
	return ids
}

// Where returns the CPUs for which keep is true.
func (m *Machine) Where(keep func(CPU) bool) cpuset.CPUSet {
	var ids []int
	for _, c := range m.CPUs {
		if keep(c) {
			ids = append(ids, c.ID)
		}
	}
	return cpuset.New(ids...)
}

// All returns all CPUs.
func (m *Machine) All() cpuset.CPUSet { return m.Where(func(CPU) bool { return true }) }

// FS is the part of a file system that Read needs.
type FS interface {
	ReadFile(path string, limit int64) ([]byte, error)
	ReadDir(path string) ([]string, error)
}

// reader reads files below the directory of the kernel's devices.
type reader struct {
	fs   FS
	root string
}

// Read reads the topology below a mounted sysfs, such as /sys. A machine without
// NUMA has one node.
func Read(fs FS, sys string) (*Machine, error) {
	r := &reader{fs, path.Join(sys, "devices/system")}
	online, err := r.set("cpu/online")
	if err != nil {
		return nil, err
	}
	if online.IsEmpty() {
		return nil, fmt.Errorf("could not detect number of cpus: %s/cpu/online is empty", r.root)
	}
	m := &Machine{}
	nodeOf := map[int]int{}
	if err := r.nodes(m, nodeOf); err != nil {
		return nil, err
	}
	type core struct{ socket, node, id int }
	cores, caches := map[core]int{}, map[string]int{}
	for _, id := range online.List() {
		c := CPU{ID: id, Node: nodeOf[id], Socket: max(r.number(fmt.Sprintf("cpu/cpu%d/topology/physical_package_id", id), 0), 0)}
		of := core{c.Socket, c.Node, r.number(fmt.Sprintf("cpu/cpu%d/topology/core_id", id), id)}
		if _, known := cores[of]; !known {
			cores[of] = id
		}
		c.Core = cores[of]
		shared := r.lastCache(id)
		if shared == "" {
			shared = fmt.Sprintf("socket %d node %d", c.Socket, c.Node)
		}
		if _, known := caches[shared]; !known {
			caches[shared] = id
		}
		c.Cache = caches[shared]
		m.CPUs = append(m.CPUs, c)
	}
	return m, nil
}

// nodes reads the NUMA nodes, and which CPUs are on them.
func (r *reader) nodes(m *Machine, nodeOf map[int]int) error {
	names, err := r.fs.ReadDir(path.Join(r.root, "node"))
	if err != nil {
		names = nil // a kernel without NUMA
	}
	for _, name := range names {
		text, ok := strings.CutPrefix(name, "node")
		id, err := strconv.Atoi(text)
		if !ok || err != nil || id < 0 || id >= maxNodes {
			continue
		}
		cpus, err := r.set("node/" + name + "/cpulist")
		if err != nil {
			return err
		}
		for _, cpu := range cpus.List() {
			nodeOf[cpu] = id
		}
		n := Node{ID: id, MemoryBytes: r.memory("node/" + name + "/meminfo"), HugePages: r.hugePages("node/" + name + "/hugepages")}
		for _, text := range strings.Fields(r.text("node/" + name + "/distance")) {
			d, err := strconv.Atoi(text)
			if err != nil || len(n.Distances) == maxNodes {
				return fmt.Errorf("%s/node/%s/distance is not a list of numbers", r.root, name)
			}
			n.Distances = append(n.Distances, d)
		}
		m.Nodes = append(m.Nodes, n)
	}
	if len(m.Nodes) == 0 {
		m.Nodes = []Node{{MemoryBytes: memTotal(r.at(path.Join(r.root, "../../../proc/meminfo"))), HugePages: r.hugePages("../../kernel/mm/hugepages"), Distances: []int{10}}}
	}
	slices.SortFunc(m.Nodes, func(a, b Node) int { return a.ID - b.ID })
	return nil
}

func (r *reader) at(name string) string {
	raw, err := r.fs.ReadFile(name, maxFile)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

// text returns a file without white space around it, "" for one that cannot be
// read.
func (r *reader) text(name string) string { return r.at(path.Join(r.root, name)) }

// number returns the number in a file, fallback without one.
func (r *reader) number(name string, fallback int) int {
	n, err := strconv.Atoi(r.text(name))
	if err != nil {
		return fallback
	}
	return n
}

// set reads a list of CPUs, such as 0-3,8. It is bounded before it is expanded.
func (r *reader) set(name string) (cpuset.CPUSet, error) {
	raw, err := r.fs.ReadFile(path.Join(r.root, name), maxFile)
	if err != nil {
		return cpuset.New(), fmt.Errorf("could not detect number of cpus: %w", err)
	}
	set, err := ParseCPUs(strings.TrimSpace(string(raw)))
	if err != nil {
		return set, fmt.Errorf("%s/%s: %w", r.root, name, err)
	}
	return set, nil
}

// ParseCPUs parses a list of CPUs such as 0-3,8. Ids that no machine has are an
// error.
func ParseCPUs(list string) (cpuset.CPUSet, error) {
	for _, part := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == '-' }) {
		if n, err := strconv.Atoi(part); err == nil && n >= maxCPUs {
			return cpuset.New(), fmt.Errorf("CPU %d is out of range", n)
		}
	}
	return cpuset.Parse(list)
}

// lastCache returns the CPUs that share the last level of cache with one, ""
// where the kernel does not say.
func (r *reader) lastCache(cpu int) string {
	shared, level := "", 0
	for index := range 10 {
		dir := fmt.Sprintf("cpu/cpu%d/cache/index%d/", cpu, index)
		if l := r.number(dir+"level", 0); l > level {
			shared, level = r.text(dir+"shared_cpu_list"), l
		}
	}
	if level < 3 { // of one core
		return ""
	}
	return shared
}

// memory returns the bytes of a node's memory.
func (r *reader) memory(name string) uint64 { return memTotal(r.text(name)) }

// memTotal returns the value of MemTotal in bytes.
func memTotal(text string) uint64 {
	for _, line := range strings.Split(text, "\n") {
		_, value, ok := strings.Cut(line, "MemTotal:")
		if fields := strings.Fields(value); ok && len(fields) > 0 {
			kb, err := strconv.ParseUint(fields[0], 10, 50)
			if err == nil {
				return kb << 10
			}
		}
	}
	return 0
}

// hugePages returns how many huge pages of each size there are.
func (r *reader) hugePages(dir string) map[uint64]uint64 {
	out := map[uint64]uint64{}
	names, err := r.fs.ReadDir(path.Join(r.root, dir))
	if err != nil {
		return out
	}
	for _, name := range names {
		text, ok := strings.CutPrefix(name, "hugepages-")
		kb, err := strconv.ParseUint(strings.TrimSuffix(text, "kB"), 10, 40)
		if !ok || err != nil {
			continue
		}
		if n, err := strconv.ParseUint(r.text(path.Join(dir, name, "nr_hugepages")), 10, 40); err == nil {
			out[kb<<10] = n
		}
	}
	return out
}
