package topology

import (
	"fmt"
	"path"
	"reflect"
	"strings"
	"testing"

	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// tree writes a sysfs.
func tree(t *testing.T, content map[string]string) *files.Memory {
	t.Helper()
	disk := &files.Memory{}
	for name, text := range content {
		name = path.Join("/sys/devices/system", name)
		if err := disk.MkdirAll(path.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := disk.WriteFile(name, []byte(text+"\n"), 0o444); err != nil {
			t.Fatal(err)
		}
	}
	return disk
}

// A machine with two sockets, each with a NUMA node of two cores with two
// threads, whose core ids are the same on both sockets.
func TestRead(t *testing.T) {
	content := map[string]string{"cpu/online": "0-7"}
	for id := range 8 {
		dir := fmt.Sprintf("cpu/cpu%d/", id)
		content[dir+"topology/physical_package_id"] = fmt.Sprint(id / 2 % 2)
		content[dir+"topology/core_id"] = fmt.Sprint(id % 2)
		content[dir+"cache/index2/level"], content[dir+"cache/index2/shared_cpu_list"] = "2", fmt.Sprint(id)
		content[dir+"cache/index3/level"], content[dir+"cache/index3/shared_cpu_list"] = "3", [...]string{"0-1,4-5", "2-3,6-7"}[id/2%2]
	}
	for id, cpus := range []string{"0-1,4-5", "2-3,6-7"} {
		dir := fmt.Sprintf("node/node%d/", id)
		content[dir+"cpulist"], content[dir+"distance"] = cpus, [...]string{"10 21", "21 10"}[id]
		content[dir+"meminfo"] = fmt.Sprintf("Node %d MemTotal:       %d kB\nNode %d MemFree: 5 kB", id, 1024*(id+1), id)
		content[dir+"hugepages/hugepages-2048kB/nr_hugepages"] = "3"
	}
	content["node/online"] = "0-1"
	m, err := Read(tree(t, content), "/sys")
	if err != nil {
		t.Fatal(err)
	}
	want := &Machine{
		CPUs: []CPU{
			{0, 0, 0, 0, 0}, {1, 1, 0, 0, 0}, {2, 2, 1, 1, 2}, {3, 3, 1, 1, 2},
			{4, 0, 0, 0, 0}, {5, 1, 0, 0, 0}, {6, 2, 1, 1, 2}, {7, 3, 1, 1, 2},
		},
		Nodes: []Node{{0, 1 << 20, map[uint64]uint64{2 << 20: 3}, []int{10, 21}}, {1, 2 << 20, map[uint64]uint64{2 << 20: 3}, []int{21, 10}}},
	}
	if !reflect.DeepEqual(m, want) {
		t.Errorf("the machine is\n%v, want\n%v", m, want)
	}
}

// A kernel without NUMA has one node. A CPU about which it reports nothing is a
// core of its own.
func TestReadWithoutNUMA(t *testing.T) {
	disk := tree(t, map[string]string{"cpu/online": "0,2"})
	if err := disk.MkdirAll("/proc", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := disk.WriteFile("/proc/meminfo", []byte("MemTotal: 7 kB\n"), 0o444); err != nil {
		t.Fatal(err)
	}
	m, err := Read(disk, "/sys")
	if err != nil {
		t.Fatal(err)
	}
	want := &Machine{CPUs: []CPU{{0, 0, 0, 0, 0}, {2, 2, 0, 0, 0}}, Nodes: []Node{{0, 7 << 10, map[uint64]uint64{}, []int{10}}}}
	if !reflect.DeepEqual(m, want) {
		t.Errorf("the machine is %v, want %v", m, want)
	}
}

// Invalid files are errors, and never fill the memory.
func TestReadMistrusts(t *testing.T) {
	for name, content := range map[string]map[string]string{
		"no CPUs":    {"cpu/online": ""},
		"no file":    {"cpu/present": "0"},
		"many CPUs":  {"cpu/online": "0-999999999"},
		"no numbers": {"cpu/online": "all"},
		"node":       {"cpu/online": "0", "node/node0/cpulist": "0-99999"},
		"distance":   {"cpu/online": "0", "node/node0/cpulist": "0", "node/node0/distance": "near"},
	} {
		if m, err := Read(tree(t, content), "/sys"); err == nil {
			t.Errorf("%s: %v", name, m)
		} else if !strings.Contains(err.Error(), "/sys/") && !strings.Contains(err.Error(), "number of cpus") {
			t.Errorf("%s: %v does not name the file", name, err)
		}
	}
}
