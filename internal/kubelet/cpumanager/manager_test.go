package cpumanager

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/kubelet/checksum"
	"github.com/coracle-io/coracle/internal/kubelet/cpumanager/state"
	"github.com/coracle-io/coracle/internal/kubelet/topology"
	"github.com/coracle-io/coracle/internal/kubelet/topologymanager"
	"github.com/coracle-io/coracle/internal/kubelet/topologymanager/providertest"
)

// machine returns a machine of so many sockets, NUMA nodes on each, cores on each
// and threads of each core. The ids of all second threads come after the ids of
// all first threads, as Linux numbers them. perCache cores share a cache.
func machine(sockets, nodes, cores, threads, perCache int) *topology.Machine {
	m := &topology.Machine{}
	all := sockets * nodes * cores
	for id := range all * threads {
		core := id % all
		m.CPUs = append(m.CPUs, topology.CPU{ID: id, Core: core, Node: core / cores, Socket: core / cores / nodes, Cache: core / perCache})
	}
	for id := range sockets * nodes {
		m.Nodes = append(m.Nodes, topology.Node{ID: id})
	}
	return m
}

func set(t *testing.T, text string) cpuset.CPUSet {
	t.Helper()
	s, err := cpuset.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Containers get whole sockets, nodes and cores where they can, and the busiest
// parts first, so that large parts stay free.
func TestChosenCPUs(t *testing.T) {
	small := machine(1, 1, 4, 2, 4)  // cores {0,4} {1,5} {2,6} {3,7}
	large := machine(2, 1, 6, 2, 6)  // node 0: 0-5,12-17; node 1: 6-11,18-23
	four := machine(2, 2, 10, 2, 10) // node 0: 0-9,40-49; node 1: 10-19,50-59; and so on
	caches := machine(1, 1, 8, 2, 2) // caches {0,1,8,9} {2,3,10,11} {4,5,12,13} {6,7,14,15}
	halves := machine(1, 1, 8, 2, 4) // caches {0-3,8-11} {4-7,12-15}
	single := machine(2, 1, 4, 2, 4) // each socket has one of them
	for name, test := range map[string]struct {
		machine *topology.Machine
		free    string
		n       int
		options Options
		want    string
	}{
		"one core":                     {small, "0-7", 2, Options{}, "0,4"},
		"a thread of a used core":      {small, "0-3,5-7", 1, Options{}, "0"},
		"a whole core before others":   {small, "1-3,5-7", 2, Options{}, "1,5"},
		"core and a half":              {small, "0-7", 3, Options{}, "0-1,4"},
		"everything":                   {small, "0-7", 8, Options{}, "0-7"},
		"spread over cores":            {small, "0-7", 3, Options{DistributeAcrossCores: true}, "0-2"},
		"a whole socket":               {large, "0-23", 12, Options{}, "0-5,12-17"},
		"the fuller socket":            {large, "1-23", 2, Options{}, "1,13"},
		"socket and a core":            {large, "0-23", 14, Options{}, "0-6,12-18"},
		"no node has enough":           {large, "2-23", 12, Options{DistributeAcrossNUMA: true}, "6-11,18-23"},
		"even on two nodes":            {large, "0-23", 16, Options{DistributeAcrossNUMA: true}, "0-3,6-9,12-15,18-21"},
		"one node is enough":           {large, "0-23", 4, Options{DistributeAcrossNUMA: true}, "0-1,12-13"},
		"a thread beside a used one":   {small, "1,3,5-7", 1, Options{}, "6"},
		"nothing":                      {small, "0-7", 0, Options{}, ""},
		"the free node after another":  {four, "1-39,41-79", 60, Options{}, "10-39,50-79"},
		"three nodes, evenly":          {four, "0-79", 48, Options{DistributeAcrossNUMA: true}, "0-7,10-17,20-27,40-47,50-57,60-67"},
		"the nodes that have most":     {four, "2-29,31-39,42-69,71-79", 48, Options{DistributeAcrossNUMA: true}, "10-17,20-27,31-38,50-57,60-67,71-78"},
		"the rest to the first nodes":  {four, "0-79", 62, Options{DistributeAcrossNUMA: true}, "0-7,10-17,20-27,30-37,40-47,50-57,60-66,70-76"},
		"the rest where most is left":  {four, "0-3,10-13,20-23,30-36,40-43,50-53,60-63,70-76", 34, Options{DistributeAcrossNUMA: true}, "0-3,10-13,20-23,30-34,40-43,50-53,60-63,70-74"},
		"one from the emptier node":    {large, "1-23", 1, Options{DistributeAcrossNUMA: true}, "6"},
		"used cores for the rest":      {large, "0-9,12-23", 14, Options{DistributeAcrossNUMA: true}, "0-3,6-8,12-14,18-20,22"},
		"a whole cache":                {caches, "0-15", 4, Options{PreferAlignByUncoreCache: true}, "0-1,8-9"},
		"a cache that has enough":      {caches, "1-15", 4, Options{PreferAlignByUncoreCache: true}, "2-3,10-11"},
		"a core of a cache":            {caches, "0-2,4-9,11-15", 2, Options{PreferAlignByUncoreCache: true}, "0,8"},
		"part of the fullest cache":    {caches, "0-1,3-9,11-15", 2, Options{PreferAlignByUncoreCache: true}, "3,11"},
		"used cores of a cache":        {halves, "2-7,9-15", 3, Options{PreferAlignByUncoreCache: true}, "2,9-10"},
		"whole cores of another cache": {halves, "2-7,9-15", 4, Options{PreferAlignByUncoreCache: true}, "4-5,12-13"},
		"a cache and used cores":       {halves, "2-7,9-15", 11, Options{PreferAlignByUncoreCache: true}, "2,4-7,9-10,12-15"},
		"whole cores, not used ones":   {single, "1-7,9-11", 2, Options{PreferAlignByUncoreCache: true}, "1,9"},
		"no cache has so many":         {halves, "2-3,6-7,10-11,14-15", 6, Options{PreferAlignByUncoreCache: true}, "2-3,6,10-11,14"},
		"cache and a part of the next": {caches, "0-15", 6, Options{PreferAlignByUncoreCache: true}, "0-2,8-10"},
	} {
		var got cpuset.CPUSet
		var err error
		if test.options.DistributeAcrossNUMA {
			got, err = distributed(test.machine, set(t, test.free), test.n, 1, test.options)
		} else {
			got, err = packed(test.machine, set(t, test.free), test.n, test.options)
		}
		if err != nil || got.String() != test.want {
			t.Errorf("%s: %s (%v), want %s", name, got, err, test.want)
		}
	}
	if _, err := packed(small, set(t, "0-1"), 3, Options{}); err == nil || err.Error() != "not enough cpus available to satisfy request: requested=3, available=2" {
		t.Error(err)
	}
}

// node is a manager with what it needs.
type node struct {
	*Manager
	*providertest.Node
	running []Container
	applied map[string]string
	fails   error
}

const stateFile = providertest.Root + "/cpu_manager_state"

// newNode returns a node with a static policy.
func newNode(t *testing.T, m *topology.Machine, reserved string, options ...string) *node {
	t.Helper()
	n := &node{Node: providertest.NewNode(t), applied: map[string]string{}}
	if err := n.start(m, Static, reserved, options...); err != nil {
		t.Fatal(err)
	}
	return n
}

// configuration returns a configuration with options of the policy.
func configuration(policy, reserved string, options ...string) *kubeletconfig.KubeletConfiguration {
	c := &kubeletconfig.KubeletConfiguration{CPUManagerPolicy: policy, ReservedSystemCPUs: reserved, CPUManagerPolicyOptions: map[string]string{}}
	c.CPUManagerReconcilePeriod.Duration = 10 * time.Second
	for _, name := range options {
		c.CPUManagerPolicyOptions[name] = "true"
	}
	return c
}

// start starts a manager on what is on the disk.
func (n *node) start(m *topology.Machine, policy, reserved string, options ...string) error {
	gates, err := feature.Parse([]string{"CPUManagerPolicyAlphaOptions=true"})
	if err != nil {
		return err
	}
	n.Manager, err = New(Config{
		Configuration: configuration(policy, reserved, options...), Features: gates, Machine: m, StateFile: stateFile, Files: n.Disk,
		Update: func(_ context.Context, id, cpus string) error {
			if n.fails == nil {
				n.applied[id] = cpus
			}
			return n.fails
		},
		Containers: func() []Container { return n.running }, SourcesReady: func() bool { return true }, Active: n.ActivePods,
	})
	if err != nil {
		return err
	}
	return n.Recover()
}

// pod returns an active guaranteed pod whose containers ask for CPUs.
func (n *node) pod(name string, init int, cpus ...string) *v1.Pod {
	var requests []v1.ResourceList
	for _, cpu := range cpus {
		requests = append(requests, providertest.Requests(cpu, "1Gi"))
	}
	return n.Add(name, init, requests...)
}

func (n *node) admit(pod *v1.Pod, policy string) error {
	return n.Admit(pod, policy, n.config.Machine.NodeIDs(), n.Manager)
}

// cpus returns the CPUs of the containers of a pod.
func (n *node) cpus(pod *v1.Pod) string {
	var out []string
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			out = append(out, n.CPUs(pod.UID, list[i].Name).String())
		}
	}
	return strings.Join(out, " ")
}

// Integer requests of guaranteed pods get CPUs of their own, all others share
// what is left.
func TestExclusiveCPUs(t *testing.T) {
	n := newNode(t, machine(1, 1, 4, 2, 4), "0,4")
	for i, test := range []struct{ cpus, want, shared string }{
		{"2", "1,5", "0,2-4,6-7"},
		{"1500m", "0,2-4,6-7", "0,2-4,6-7"},
		{"1", "2", "0,3-4,6-7"},
	} {
		pod := n.pod(fmt.Sprint(i), 0, test.cpus)
		if err := n.admit(pod, topologymanager.None); err != nil {
			t.Fatal(err)
		}
		if got := n.cpus(pod); got != test.want || n.shared.String() != test.shared {
			t.Errorf("%s: %s, shared %s; want %s, shared %s", test.cpus, got, n.shared, test.want, test.shared)
		}
	}
	burstable := n.pod("burstable", 0, "2")
	delete(burstable.Spec.Containers[0].Resources.Limits, v1.ResourceMemory)
	if err := n.admit(burstable, topologymanager.None); err != nil || !n.Exclusive(burstable.UID, "a").IsEmpty() {
		t.Errorf("a burstable pod has %s (%v)", n.Exclusive(burstable.UID, "a"), err)
	}
	reason, message := topologymanager.Rejection(n.admit(n.pod("large", 0, "4"), topologymanager.None))
	if want := "Allocate failed due to not enough cpus available to satisfy request: requested=4, available=3, which is unexpected"; reason != "UnexpectedAdmissionError" || message != want {
		t.Errorf("%s: %s, want %s", reason, message, want)
	}
	n.Release("uid-0")
	if n.shared.String() != "0-1,3-7" {
		t.Errorf("after the end of a pod the shared pool is %s", n.shared)
	}
	n.Active = nil // the kubelet has not seen them end
	if err := n.admit(n.pod("all", 0, "6"), topologymanager.None); err != nil {
		t.Error(err)
	}
	if got := n.Allocatable().String(); got != "1-3,5-7" {
		t.Errorf("allocatable are %s", got)
	}
}

// The CPUs of an init container go to the containers after it.
func TestInitContainersPassCPUsOn(t *testing.T) {
	n := newNode(t, machine(1, 1, 4, 2, 4), "0")
	pod := n.pod("p", 1, "4", "2", "1")
	if err := n.admit(pod, topologymanager.None); err != nil {
		t.Fatal(err)
	}
	if got, want := n.cpus(pod), "1-2,5-6 1,5 2"; got != want {
		t.Errorf("the containers have %s, want %s", got, want)
	}
}

// A pod that is admitted while the manager looks for pods that are gone keeps its
// CPUs.
func TestPodsThatAreAdmittedMeanwhileKeepCPUs(t *testing.T) {
	n := newNode(t, machine(1, 1, 4, 1, 4), "0")
	if err := n.admit(n.pod("gone", 0, "1"), topologymanager.None); err != nil {
		t.Fatal(err)
	}
	n.Active = nil
	added := n.pod("added", 0, "1")
	n.config.Active = func() []*v1.Pod { // answers just before the pod is admitted
		n.config.Active = n.ActivePods
		if err := n.admit(added, topologymanager.None); err != nil {
			t.Error(err)
		}
		return nil
	}
	n.releaseInactive()
	if got := n.cpus(added); got != "1" {
		t.Errorf("the pod has the CPUs %s", got)
	}
}

// Running containers follow the shared pool, and every period what they should
// have is applied again if that failed.
func TestRunningContainersMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, machine(1, 1, 4, 1, 4), "0")
		shared := n.pod("shared", 0, "500m")
		n.running = []Container{{shared.UID, "a", "one"}}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			n.Run(ctx)
		}()
		synctest.Wait()
		expect := func(want string) {
			t.Helper()
			synctest.Wait()
			if got := n.applied["one"]; got != want {
				t.Errorf("the container has %s, want %s", got, want)
			}
		}
		expect("0-3")
		pod := n.pod("exclusive", 0, "2")
		if err := n.admit(pod, topologymanager.None); err != nil {
			t.Fatal(err)
		}
		expect("0,3")
		n.fails = errors.New("busy")
		n.Release(pod.UID)
		expect("0,3")
		n.fails = nil
		time.Sleep(10 * time.Second)
		expect("0-3")
		cancel()
		<-done
	})
}

// Assignments survive a restart of the kubelet. Another policy, machine or
// reservation is an error that names the file.
func TestStateFile(t *testing.T) {
	small := machine(1, 1, 4, 1, 4)
	n := newNode(t, small, "0")
	pod := n.pod("p", 0, "2")
	if err := n.admit(pod, topologymanager.None); err != nil {
		t.Fatal(err)
	}
	if err := n.start(small, Static, "0"); err != nil || n.cpus(pod) != "1-2" {
		t.Errorf("after a restart the container has %s (%v)", n.cpus(pod), err)
	}
	good, err := n.Disk.ReadFile(stateFile, maxState)
	if err != nil {
		t.Fatal(err)
	}
	with := func(shared string) func() error { // the pod has 1-2
		return func() error {
			kept := state.CPUManagerCheckpoint{PolicyName: Static, DefaultCPUSet: shared, Entries: map[string]map[string]string{"uid-p": {"a": "1-2"}}}
			raw, err := kept.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			n.Write(stateFile, string(raw))
			return n.start(small, Static, "0")
		}
	}
	for want, start := range map[string]func() error{
		"default cpuset cannot be empty":                                              with(""),
		`pod: uid-p, container: a cpuset: "1-2" overlaps with default cpuset "0-1,3"`: with("0-1,3"),
		`could not parse default cpu set "0-"`:                                        with("0-"),
		`configured policy "none" differs from state checkpoint policy "static"`:      func() error { return n.start(small, None, "") },
		`current set of available CPUs "0-4" doesn't match with CPUs in state "0-3"`: func() error {
			return n.start(machine(1, 1, 5, 1, 5), Static, "0")
		},
		`not all reserved cpus: "1" are present in defaultCpuSet: "0,3"`:          func() error { return n.start(small, Static, "1") },
		`some of strictly reserved cpus: "0" are present in defaultCpuSet: "0,3"`: func() error { return n.start(small, Static, "0", "strict-cpu-reservation") },
		"checkpoint is corrupted": func() error {
			damaged := strings.Replace(string(good), `"1-2"`, `"1-3"`, 1)
			n.Write(stateFile, damaged)
			return n.start(small, Static, "0")
		},
	} {
		n.Write(stateFile, string(good))
		err := start()
		if text := fmt.Sprint(err); !strings.Contains(text, want) || !strings.Contains(text, `please drain this node and delete the CPU manager checkpoint file "`+stateFile+`"`) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// With strict-cpu-reservation no container runs on the reserved CPUs.
func TestStrictReservation(t *testing.T) {
	n := newNode(t, machine(1, 1, 4, 1, 4), "0-1", "strict-cpu-reservation")
	if got := n.CPUs("any", "a").String(); got != "2-3" {
		t.Errorf("the shared pool is %s", got)
	}
	pod := n.pod("p", 0, "2") // takes all that are not reserved
	if err := n.admit(pod, topologymanager.None); err != nil || !n.shared.IsEmpty() {
		t.Fatalf("the shared pool is %s (%v)", n.shared, err)
	}
	if err := n.start(machine(1, 1, 4, 1, 4), Static, "0-1", "strict-cpu-reservation"); err != nil || n.cpus(pod) != "2-3" {
		t.Errorf("after a restart the container has %s (%v)", n.cpus(pod), err)
	}
}

// The system's CPUs are a number, rounded up, or a list. A static policy needs
// them.
func TestReservation(t *testing.T) {
	config := Config{Configuration: configuration(Static, ""), Machine: machine(1, 1, 4, 2, 4)}
	if _, err := New(config); err == nil || !strings.Contains(err.Error(), "the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero") {
		t.Error(err)
	}
	config.Configuration.SystemReserved = map[string]string{"cpu": "600m"}
	config.Configuration.KubeReserved = map[string]string{"cpu": "500m"}
	if m, err := New(config); err != nil || m.reserved.String() != "0,4" {
		t.Errorf("reserved are %v (%v)", m.reserved, err)
	}
	config.Configuration.ReservedSystemCPUs = "7-8"
	if _, err := New(config); err == nil || !strings.Contains(err.Error(), "reservedSystemCPUs 7-8 are not CPUs of this machine") {
		t.Error(err)
	}
	gates, err := feature.Parse([]string{"CPUManagerPolicyAlphaOptions=true"})
	if err != nil {
		t.Fatal(err)
	}
	config.Configuration, config.Features = configuration(Static, "7", "align-by-socket"), gates
	config.Configuration.TopologyManagerPolicy = topologymanager.SingleNUMANode
	if _, err := New(config); err == nil || !strings.Contains(err.Error(), "align-by-socket") {
		t.Error(err)
	}
}

// With align-by-socket, CPUs of several nodes of one socket are as good as CPUs
// of one node.
func TestAlignBySocket(t *testing.T) {
	m := machine(2, 2, 2, 1, 2) // socket 0: nodes 0 (0-1) and 1 (2-3); socket 1: nodes 2 (4-5) and 3 (6-7)
	for want, options := range map[string][]string{"TopologyAffinityError": nil, "": {"align-by-socket"}} {
		n := newNode(t, m, "0,2,4,6", options...) // one CPU of each node is left
		reason := ""
		if err := n.admit(n.pod("p", 0, "2"), topologymanager.Restricted); err != nil {
			reason, _ = topologymanager.Rejection(err)
		}
		if reason != want {
			t.Errorf("%q: %q, want %q", options, reason, want)
		}
	}
}

// The files of upstream's kubelets are read, and written the same.
func TestStateFormat(t *testing.T) {
	for _, written := range []string{
		`{"policyName":"none","defaultCpuSet":"","checksum":1353318690}`,
		`{"policyName":"static","defaultCpuSet":"0-3","checksum":611748604}`,
		`{"policyName":"static","defaultCpuSet":"2-15,17-31,34-47,49-63","checksum":4141502832}`,
		`{"policyName":"static","defaultCpuSet":"0-1,3-33,35-63","entries":{"4378c1c9-7a86-48a0-8ad9-5a0d4ff4b3ac":{"nettools-deploy":"2,34"}},"checksum":239816225}`,
	} {
		kept, err := state.Unmarshal([]byte(written))
		if err != nil {
			t.Errorf("%s: %v", written, err)
			continue
		}
		if raw, err := kept.Marshal(); err != nil || string(raw) != written {
			t.Errorf("%s (%v), want %s", raw, err, written)
		}
	}
	const data = `{"policyName":"static","defaultCpuSet":"0","entries":{"u":{"c":"1"}}}`
	newer := fmt.Sprintf(`{"policyName":"static","defaultCpuSet":"0","checksum":0,"data":%q,"dataChecksum":%d}`, data, checksum.New(data))
	if kept, err := state.Unmarshal([]byte(newer)); err != nil || kept.Entries["u"]["c"] != "1" {
		t.Errorf("%v (%v)", kept, err)
	}
	for _, damaged := range []string{
		strings.Replace(newer, `\"1\"`, `\"2\"`, 1), strings.Replace(newer, `"dataChecksum"`, `"other"`, 1), strings.Replace(newer, `"data"`, `"other"`, 1),
	} {
		if _, err := state.Unmarshal([]byte(damaged)); !errors.Is(err, checksum.ErrCorrupt) {
			t.Errorf("%s: %v", damaged, err)
		}
	}
}

// Each option is checked by its stage.
func TestOptions(t *testing.T) {
	on, err := feature.Parse([]string{"CPUManagerPolicyAlphaOptions=true"})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]Options{
		"full-pcpus-only": {FullPCPUsOnly: true}, "strict-cpu-reservation": {StrictReservation: true}, "distribute-cpus-across-numa": {DistributeAcrossNUMA: true},
		"prefer-align-cpus-by-uncorecache": {PreferAlignByUncoreCache: true}, "align-by-socket": {AlignBySocket: true}, "distribute-cpus-across-cores": {DistributeAcrossCores: true},
	}
	for name := range maps.Keys(all) {
		if got, err := ParseOptions(Static, map[string]string{name: "true"}, on); err != nil || got != all[name] {
			t.Errorf("%s: %v (%v)", name, got, err)
		}
	}
	off, err := feature.Parse([]string{"CPUManagerPolicyBetaOptions=false"})
	if err != nil {
		t.Fatal(err)
	}
	both := func(one, other string) string {
		return "static policy options " + one + " and " + other + " can not be used at the same time"
	}
	for _, test := range []struct {
		policy, options string
		gates           *feature.Set
		want            string // an error, none if empty
	}{
		{None, "", off, ""},
		{None, "full-pcpus-only=true", on, "None policy: received unsupported options=map[full-pcpus-only:true]"},
		{Static, "", off, ""},
		{Static, "full-pcpus-only=true strict-cpu-reservation=true", off, ""},
		{Static, "distribute-cpus-across-numa=true", off, `CPU Manager Policy Beta-level Options not enabled, but option "distribute-cpus-across-numa" provided`},
		{Static, "align-by-socket=true", off, `CPU Manager Policy Alpha-level Options not enabled, but option "align-by-socket" provided`},
		{Static, "unknown=true", on, `unknown CPU Manager Policy option: "unknown"`},
		{Static, "full-pcpus-only=maybe", on, `bad value for option "full-pcpus-only": strconv.ParseBool: parsing "maybe": invalid syntax`},
		{Static, "full-pcpus-only=true distribute-cpus-across-numa=true", on, ""},
		{Static, "full-pcpus-only=true distribute-cpus-across-cores=true", on, both("full-pcpus-only", "distribute-cpus-across-cores")},
		{Static, "distribute-cpus-across-numa=true distribute-cpus-across-cores=true", on, both("distribute-cpus-across-numa", "distribute-cpus-across-cores")},
		{Static, "full-pcpus-only=true distribute-cpus-across-cores=false", on, ""},
	} {
		values := map[string]string{}
		for _, option := range strings.Fields(test.options) {
			name, value, _ := strings.Cut(option, "=")
			values[name] = value
		}
		text := ""
		if _, err := ParseOptions(test.policy, values, test.gates); err != nil {
			text = err.Error()
		}
		if text != test.want {
			t.Errorf("%s, %s: %q, want %q", test.policy, test.options, text, test.want)
		}
	}
}

// Hints are the sets of nodes that have enough CPUs. Those are preferred (with a *)
// that are as small as they could be on an empty machine.
func TestHints(t *testing.T) {
	for name, test := range map[string]struct{ cpus, free, has, want string }{
		"each node has them":     {"2", "2-11", "", "0* 1* 0,1"},
		"one node has them":      {"5", "2-11", "", "1* 0,1"},
		"no node has so many":    {"7", "2-11", "", "0,1*"},
		"too few are free":       {"2", "1,3", "", "0,1"},
		"more than are free":     {"11", "2-11", "", ""},
		"a reserved one":         {"2", "0-1", "", ""},
		"has them on node 0":     {"2", "0", "1,7", "0* 0,1"},
		"has them on node 1":     {"2", "0", "3,9", "1* 0,1"},
		"has them on both":       {"10", "0", "1-10", "0,1*"},
		"has more than it wants": {"2", "0", "1,3,7,9", ""},
		"wants more than it has": {"10", "0", "1,3,7,9", ""},
	} {
		n := newNode(t, machine(2, 1, 3, 2, 3), "0") // node 0: 0-2,6-8; node 1: 3-5,9-11
		pod := n.pod("p", 0, test.cpus)
		n.shared = set(t, test.free)
		if test.has != "" {
			n.set(pod.UID, "a", set(t, test.has))
		}
		for _, hints := range []topologymanager.Hints{n.Hints(topologymanager.Request{Pod: pod, Container: &pod.Spec.Containers[0]}), n.PodHints(pod)} {
			var got []string
			for _, h := range hints["cpu"] {
				text := h.Affinity.String()
				if h.Preferred {
					text += "*"
				}
				got = append(got, text)
			}
			if text := strings.Join(got, " "); text != test.want || hints["cpu"] == nil {
				t.Errorf("%s: %q, want %q", name, text, test.want)
			}
		}
	}
}

// An empty file counts as none. The policy none starts with a damaged one too.
func TestStateFileWithoutState(t *testing.T) {
	small := machine(1, 1, 4, 1, 4)
	n := newNode(t, small, "0")
	for _, test := range []struct{ content, policy, reserved, want string }{
		{"", Static, "0", `"defaultCpuSet":"0-3"`},
		{"", None, "", `"policyName":"none"`},
		{"{", None, "", `"policyName":"none"`},
	} {
		n.Write(stateFile, test.content)
		if err := n.start(small, test.policy, test.reserved); err != nil {
			t.Errorf("policy %s, content %q: %v", test.policy, test.content, err)
		}
		if raw, err := n.Disk.ReadFile(stateFile, maxState); err != nil || !strings.Contains(string(raw), test.want) {
			t.Errorf("policy %s, content %q: the file has %s (%v), want %s", test.policy, test.content, raw, err, test.want)
		}
	}
}
