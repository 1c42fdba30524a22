package memorymanager

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/kubelet/checksum"
	"github.com/coracle-io/coracle/internal/kubelet/memorymanager/state"
	"github.com/coracle-io/coracle/internal/kubelet/topology"
	"github.com/coracle-io/coracle/internal/kubelet/topologymanager"
	"github.com/coracle-io/coracle/internal/kubelet/topologymanager/providertest"
)

const (
	gi        = 1 << 30
	stateFile = providertest.Root + "/memory_manager_state"
)

// node is a manager with what it needs.
type node struct {
	*Manager
	*providertest.Node
}

// newNode returns a node with two NUMA nodes of 10 Gi, each of which has 1 Gi of
// huge pages and the first keeps 1 Gi for the system.
func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{Node: providertest.NewNode(t)}
	if err := n.start(Static); err != nil {
		t.Fatal(err)
	}
	return n
}

func config() Config {
	one := v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}
	return Config{
		Configuration: &kubeletconfig.KubeletConfiguration{
			MemoryManagerPolicy: Static, SystemReserved: map[string]string{"memory": "1Gi"}, ReservedMemory: []kubeletconfig.MemoryReservation{{NumaNode: 0, Limits: one}},
		},
		StateFile: stateFile,
		Machine: &topology.Machine{Nodes: []topology.Node{
			{ID: 0, MemoryBytes: 10 * gi, HugePages: map[uint64]uint64{2 << 20: 512}}, {ID: 1, MemoryBytes: 10 * gi, HugePages: map[uint64]uint64{2 << 20: 512}}}},
		SourcesReady: func() bool { return true },
	}
}

// start starts a manager on what is on the disk.
func (n *node) start(policy string) (err error) {
	c := config()
	c.Configuration.MemoryManagerPolicy, c.Files, c.Active = policy, n.Disk, n.ActivePods
	if n.Manager, err = New(c); err != nil {
		return err
	}
	return n.Recover()
}

// pod returns an active guaranteed pod whose containers ask for memory.
func (n *node) pod(name string, init int, memory ...string) *v1.Pod {
	var requests []v1.ResourceList
	for _, size := range memory {
		requests = append(requests, providertest.Requests("1", size))
	}
	return n.Add(name, init, requests...)
}

func (n *node) admit(pod *v1.Pod, policy string) error {
	return n.Admit(pod, policy, []int{0, 1}, n.Manager)
}

// free returns the free memory of the nodes in Gi.
func (n *node) free() string {
	m := n.machine()
	return fmt.Sprint(m[0].MemoryMap[v1.ResourceMemory].Free/gi, m[1].MemoryMap[v1.ResourceMemory].Free/gi)
}

// Guaranteed containers have memory of as few nodes as possible. A node that
// serves single containers does not serve others together with another node.
func TestGuaranteedMemory(t *testing.T) {
	n := newNode(t)
	if got := n.free(); got != "8 9" {
		t.Fatalf("free are %s", got)
	}
	for _, step := range []struct{ name, memory, nodes, free string }{
		{"first", "6Gi", "0", "2 9"},
		{"second", "5Gi", "1", "2 4"},
		{"third", "2Gi", "0", "0 4"},
	} {
		pod := n.pod(step.name, 0, step.memory)
		if err := n.admit(pod, topologymanager.None); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if got := n.Nodes(pod.UID, "a").String(); got != step.nodes || n.free() != step.free {
			t.Errorf("%s: nodes %s, free %s; want %s and %s", step.name, got, n.free(), step.nodes, step.free)
		}
	}
	burstable := n.pod("burstable", 0, "1Gi")
	delete(burstable.Spec.Containers[0].Resources.Limits, v1.ResourceCPU)
	if err := n.admit(burstable, topologymanager.None); err != nil || n.Nodes(burstable.UID, "a") != 0 {
		t.Errorf("a burstable pod has memory of %s (%v)", n.Nodes(burstable.UID, "a"), err)
	}
	if err := n.admit(n.pod("together", 0, "10Gi"), topologymanager.None); err == nil || !strings.Contains(err.Error(), "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available") {
		t.Error(err)
	}
	n.Active = nil
	both := n.pod("both", 0, "10Gi")
	if err := n.admit(both, topologymanager.Restricted); err != nil || n.Nodes(both.UID, "a").String() != "0,1" || n.free() != "0 7" {
		t.Errorf("a large container has %s, free %s (%v)", n.Nodes(both.UID, "a"), n.free(), err)
	}
	if reason, _ := topologymanager.Rejection(n.admit(n.pod("single", 0, "1Gi"), topologymanager.SingleNUMANode)); reason != "TopologyAffinityError" {
		t.Error(reason)
	}
	n.Release(both.UID)
	if got := n.free(); got != "8 9" {
		t.Errorf("after the end free are %s", got)
	}
}

// A pod that is admitted while the manager looks for pods that are gone keeps its
// memory.
func TestPodsThatAreAdmittedMeanwhileKeepMemory(t *testing.T) {
	n := newNode(t)
	if err := n.admit(n.pod("gone", 0, "1Gi"), topologymanager.None); err != nil {
		t.Fatal(err)
	}
	n.Active = nil
	added := n.pod("added", 0, "1Gi")
	n.config.Active = func() []*v1.Pod { // answers just before the pod is admitted
		n.config.Active = n.ActivePods
		if err := n.admit(added, topologymanager.None); err != nil {
			t.Error(err)
		}
		return nil
	}
	n.releaseInactive()
	if got := n.free(); got != "7 9" {
		t.Errorf("free are %s", got)
	}
}

// Allocations survive a restart of the kubelet. Another policy, another machine
// or a damaged file is an error that names the file.
func TestStateFile(t *testing.T) {
	n := newNode(t)
	pod := n.pod("p", 0, "2Gi")
	if err := n.admit(pod, topologymanager.None); err != nil {
		t.Fatal(err)
	}
	if err := n.start(Static); err != nil || n.free() != "6 9" || n.Nodes(pod.UID, "a").String() != "0" {
		t.Errorf("after a restart free are %s (%v)", n.free(), err)
	}
	good, err := n.Disk.ReadFile(stateFile, maxState)
	if err != nil {
		t.Fatal(err)
	}
	edit := func(change func(*state.MemoryManagerCheckpoint)) func(string) string {
		return func(s string) string {
			kept, err := state.Unmarshal([]byte(s))
			if err != nil {
				t.Fatal(err)
			}
			change(kept)
			raw, err := kept.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			return string(raw)
		}
	}
	for name, test := range map[string]struct {
		change func(string) string
		policy string
		want   string
	}{
		"policy":  {func(s string) string { return s }, None, `[memorymanager] configured policy "None" differs from state checkpoint policy "Static"`},
		"damaged": {func(s string) string { return strings.Replace(s, `"size":2147483648`, `"size":1`, 1) }, Static, "checkpoint is corrupted"},
		"machine": {edit(func(c *state.MemoryManagerCheckpoint) { c.MachineState[1].MemoryMap[v1.ResourceMemory].TotalMemSize++ }),
			Static, "[memorymanager] the expected machine state is different from the real one"},
		"reserved": {edit(func(c *state.MemoryManagerCheckpoint) { c.MachineState[0].MemoryMap[v1.ResourceMemory].Reserved = 0 }),
			Static, "[memorymanager] the expected machine state is different from the real one"},
		"fewer nodes": {edit(func(c *state.MemoryManagerCheckpoint) { delete(c.MachineState, 1) }),
			Static, "[memorymanager] the expected machine state is different from the real one"},
		"fewer kinds": {edit(func(c *state.MemoryManagerCheckpoint) { delete(c.MachineState[0].MemoryMap, "hugepages-2Mi") }),
			Static, "[memorymanager] the expected machine state is different from the real one"},
		"no machine": {edit(func(c *state.MemoryManagerCheckpoint) { c.MachineState = state.NUMANodeMap{} }),
			Static, "[memorymanager] machine state can not be empty when it has memory assignments"},
		"no such node": {edit(func(c *state.MemoryManagerCheckpoint) { c.Entries["uid-p"]["a"][0].NUMAAffinity = []int{2} }),
			Static, "[memorymanager] (pod: uid-p, container: a) the memory assignment uses the NUMA that does not exist"},
		"no such pages": {edit(func(c *state.MemoryManagerCheckpoint) { c.Entries["uid-p"]["a"][0].Type = "hugepages-1Gi" }),
			Static, "[memorymanager] (pod: uid-p, container: a) the memory assignment uses memory resource that does not exist"},
	} {
		n.Write(stateFile, test.change(string(good)))
		err := n.start(test.policy)
		if text := fmt.Sprint(err); !strings.Contains(text, test.want) || !strings.Contains(text, stateFile) {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
}

// The file that every kubelet with default settings has is read, and written the
// same.
func TestStateFormat(t *testing.T) {
	const written = `{"policyName":"None","machineState":{},"checksum":4236770233}`
	kept, err := state.Unmarshal([]byte(written))
	if err != nil {
		t.Fatal(err)
	}
	if raw, err := kept.Marshal(); err != nil || string(raw) != written {
		t.Errorf("%s (%v)", raw, err)
	}
}

// Newer kubelets of upstream write all of it as text beside the fields of before, and
// the text counts.
func TestNewerStateFormat(t *testing.T) {
	const data = `{"policyName":"Static","machineState":{"0":{"numberOfAssignments":1,"memoryMap":{"memory":{"total":8,"systemReserved":1,"allocatable":7,"reserved":2,"free":5}},"cells":[0]}},"entries":{"u":{"c":[{"numaAffinity":[0],"type":"memory","size":2}]}},"podEntries":{"v":{}}}`
	const sum = 1009237858
	file := func(data string, sum int) string {
		return fmt.Sprintf(`{"policyName":"None","machineState":{},"checksum":1,"data":%q,"dataChecksum":%d}`, data, sum)
	}
	kept, err := state.Unmarshal([]byte(file(data, sum)))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(kept.PolicyName, " ", kept.Entries, " ", *kept.MachineState[0].MemoryMap[v1.ResourceMemory]); got != "Static map[u:map[c:[{[0] memory 2}]]] {8 1 7 2 5}" {
		t.Error(got)
	}
	for name, damaged := range map[string]string{"text": file(strings.Replace(data, "5", "6", 1), sum), "without a checksum": file(data, 0), "without text": file("", sum)} {
		if _, err := state.Unmarshal([]byte(damaged)); !errors.Is(err, checksum.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if kept, err := state.Unmarshal([]byte(`{"policyName":"None","machineState":{},"checksum":0}`)); err != nil || kept.PolicyName != "None" {
		t.Errorf("without any checksum: %v (%v)", kept, err)
	}
}

// The reservations of the nodes add up to what the system keeps.
func TestReservation(t *testing.T) {
	for want, change := range map[string]func(*kubeletconfig.KubeletConfiguration, *topology.Machine){
		`the total amount "1Gi" of type "memory" is not equal to the value "2Gi" determined by Node Allocatable feature`: func(c *kubeletconfig.KubeletConfiguration, _ *topology.Machine) {
			c.KubeReserved = map[string]string{"memory": "512Mi"}
			c.EvictionHard = map[string]string{"memory.available": "512Mi"}
		},
		`the total amount "1Gi" of type "memory" is not equal to the value "0" determined by Node Allocatable feature`: func(c *kubeletconfig.KubeletConfiguration, _ *topology.Machine) { c.SystemReserved = nil },
		"[memorymanager] you should specify the system reserved memory": func(c *kubeletconfig.KubeletConfiguration, _ *topology.Machine) {
			c.SystemReserved, c.ReservedMemory = nil, nil
		},
		"the reserved memory configuration references a NUMA node 0 that does not exist on this machine": func(_ *kubeletconfig.KubeletConfiguration, m *topology.Machine) { m.Nodes = m.Nodes[1:] },
		"the reserved memory configuration references a NUMA node 2 that does not exist on this machine": func(c *kubeletconfig.KubeletConfiguration, _ *topology.Machine) {
			c.ReservedMemory[0].NumaNode = 2
		},
		`the total amount "3Gi" of type "memory" is not equal to the value "1Gi" determined by Node Allocatable feature`: func(c *kubeletconfig.KubeletConfiguration, _ *topology.Machine) {
			two := v1.ResourceList{v1.ResourceMemory: resource.MustParse("2Gi")}
			c.ReservedMemory = append(c.ReservedMemory, kubeletconfig.MemoryReservation{NumaNode: 1, Limits: two})
		},
		`the total amount "512Mi" of type "hugepages-2Mi" is not equal to the value "0" determined by Node Allocatable feature`: func(c *kubeletconfig.KubeletConfiguration, _ *topology.Machine) {
			c.ReservedMemory[0].Limits["hugepages-2Mi"] = resource.MustParse("512Mi")
		},
	} {
		c := config()
		change(c.Configuration, c.Machine)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	c, half := config(), v1.ResourceList{v1.ResourceMemory: resource.MustParse("512Mi")}
	c.Configuration.ReservedMemory = []kubeletconfig.MemoryReservation{{NumaNode: 0, Limits: half}, {NumaNode: 1, Limits: half}}
	m, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	for id, n := range m.empty() {
		if kept := n.MemoryMap[v1.ResourceMemory]; kept.SystemReserved != 512<<20 || kept.Allocatable != 9*gi-512<<20 {
			t.Errorf("node %d: %+v", id, kept)
		}
	}
}

// An empty file counts as none. The policy None starts with a damaged one too.
func TestStateFileWithoutState(t *testing.T) {
	n := newNode(t)
	for _, test := range []struct{ content, policy string }{{"", Static}, {"", None}, {"{", None}} {
		n.Write(stateFile, test.content)
		if err := n.start(test.policy); err != nil {
			t.Errorf("policy %s, content %q: %v", test.policy, test.content, err)
		}
		if raw, err := n.Disk.ReadFile(stateFile, maxState); err != nil || !strings.Contains(string(raw), `"policyName":"`+test.policy+`"`) {
			t.Errorf("policy %s, content %q: the file has %s (%v)", test.policy, test.content, raw, err)
		}
	}
}

// hinted returns the hints for the memory of the pod's first container, sorted: nodes,
// with + if they are preferred.
func (n *node) hinted(pod *v1.Pod) string {
	hints, known := n.Hints(topologymanager.Request{Pod: pod, Container: &pod.Spec.Containers[0]})[string(v1.ResourceMemory)]
	if !known {
		return "no preference"
	}
	var text []string
	for _, h := range hints {
		one := h.Affinity.String()
		if h.Preferred {
			one += "+"
		}
		text = append(text, one)
	}
	slices.Sort(text)
	return strings.Join(text, " ")
}

// The hints are the sets of nodes that have enough memory and serve no container alone, or
// with others. Those with the fewest nodes that could ever do are preferred.
func TestHints(t *testing.T) {
	n := newNode(t)
	check := func(what string, pod *v1.Pod, want string) {
		t.Helper()
		if got := n.hinted(pod); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	check("either node", n.pod("small", 0, "2Gi"), "0+ 0,1 1+")
	check("the larger one", n.pod("large", 0, "9Gi"), "0,1 1+")
	check("both nodes", n.pod("both", 0, "17Gi"), "0,1+")
	check("no node", n.pod("huge", 0, "18Gi"), "")
	burstable := n.pod("burstable", 0, "1Gi")
	delete(burstable.Spec.Containers[0].Resources.Limits, v1.ResourceCPU)
	check("a burstable pod", burstable, "no preference")
	pages := providertest.Requests("1", "1Gi")
	pages["hugepages-2Mi"] = resource.MustParse("1536Mi")
	check("huge pages of both nodes", n.Add("pages", 0, pages), "0,1+")

	single := n.pod("single", 0, "6Gi")
	if err := n.admit(single, topologymanager.None); err != nil {
		t.Fatal(err)
	}
	check("a pod that has memory", single, "0+")
	check("beside it", n.pod("beside", 0, "2Gi"), "0+ 1+")
	check("more than is left there", n.pod("elsewhere", 0, "3Gi"), "1+")
	n.Release(single.UID)
	wide := n.pod("wide", 0, "10Gi")
	if err := n.admit(wide, topologymanager.None); err != nil {
		t.Fatal(err)
	}
	check("beside one of both nodes", n.pod("again", 0, "2Gi"), "0,1")
	if got := n.Nodes(wide.UID, "a").String(); got != "0,1" {
		t.Errorf("the wide pod has memory of %s", got)
	}
	if err := n.admit(n.pod("too much", 0, "18Gi"), topologymanager.None); err == nil {
		t.Error("a pod has more memory than there is")
	}
	if all, failed := testutil.ToFloat64(n.pinnings), testutil.ToFloat64(n.failures); all != 3 || failed != 1 {
		t.Errorf("%v allocations are counted, %v of them failed", all, failed)
	}
}
