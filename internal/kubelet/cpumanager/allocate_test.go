package cpumanager

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coracle-io/coracle/internal/kubelet/topologymanager"
)

// With full-pcpus-only no core is shared.
func TestWholeCoresOnly(t *testing.T) {
	n := newNode(t, machine(1, 1, 4, 2, 4), "0", "full-pcpus-only")
	for cpus, want := range map[string]string{
		"3": "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2",
		"8": "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 6, requested CPUs = 8, CPUs per core = 2",
	} {
		if reason, message := topologymanager.Rejection(n.admit(n.pod(cpus, 0, cpus), topologymanager.None)); reason != "SMTAlignmentError" || message != want {
			t.Errorf("%s: %s: %s, want %s", cpus, reason, message, want)
		}
	}
	if pod := n.pod("fits", 0, "6"); n.admit(pod, topologymanager.None) != nil || n.cpus(pod) != "1-3,5-7" {
		t.Errorf("the container has %s", n.cpus(pod))
	}
}

// The topology manager gets CPUs of one node, or rejects the pod.
func TestCPUsOfOneNode(t *testing.T) {
	n := newNode(t, machine(2, 1, 4, 1, 4), "0")
	if pod := n.pod("first", 0, "4"); n.admit(pod, topologymanager.SingleNUMANode) != nil || n.cpus(pod) != "4-7" {
		t.Errorf("the first container has %s", n.cpus(pod))
	}
	reason, message := topologymanager.Rejection(n.admit(n.pod("second", 0, "4"), topologymanager.SingleNUMANode))
	if reason != "TopologyAffinityError" || message != "Resources cannot be allocated with Topology locality" {
		t.Errorf("%s: %s", reason, message)
	}
	if reason, _ := topologymanager.Rejection(n.admit(n.pod("third", 0, "5"), topologymanager.SingleNUMANode)); reason != "TopologyAffinityError" {
		t.Error(reason)
	}
	n.Release("uid-first")
	if pod := n.pod("fourth", 0, "5"); n.admit(pod, topologymanager.Restricted) != nil || n.Exclusive(pod.UID, "a").Size() != 5 {
		t.Errorf("a container that no node can hold has %s", n.cpus(pod))
	}
}

// With full-pcpus-only, the other thread of a reserved CPU is not available, also on
// the NUMA node that the topology manager has chosen.
func TestWholeCoresOfANode(t *testing.T) {
	n := newNode(t, machine(2, 1, 2, 2, 2), "0-1", "full-pcpus-only") // node 0: 0-1,4-5; node 1: 2-3,6-7
	pod := n.pod("p", 0, "2")
	r := topologymanager.Request{Pod: pod, Container: &pod.Spec.Containers[0]}
	if hints := n.Hints(r)["cpu"]; len(hints) != 2 || hints[0].Affinity.String() != "1" {
		t.Errorf("the hints are %v", hints)
	}
	first := topologymanager.NewMask(0)
	r.Affinity.Affinity = &first
	if err := n.Allocate(t.Context(), r); err != nil || n.cpus(pod) != "2,6" {
		t.Errorf("the container has %s (%v)", n.cpus(pod), err)
	}
}

// After a restart during an admission, the containers of a pod that have no CPUs yet
// get them from the NUMA nodes of the others.
func TestHintsOfAPodThatHasSome(t *testing.T) {
	n := newNode(t, machine(2, 1, 4, 1, 4), "0")
	pod, second := n.pod("p", 0, "2", "2"), topologymanager.NewMask(1)
	r := topologymanager.Request{Pod: pod, Container: &pod.Spec.Containers[0], Affinity: topologymanager.Hint{Affinity: &second}}
	if err := n.Allocate(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := n.start(machine(2, 1, 4, 1, 4), Static, "0"); err != nil {
		t.Fatal(err)
	}
	hints := n.PodHints(pod)["cpu"]
	if len(hints) != 2 || hints[0].Affinity.String() != "1" || !hints[0].Preferred || hints[1].Affinity.String() != "0,1" {
		t.Errorf("the hints are %v", hints)
	}
}

// The metrics say how the CPUs are divided, and which containers have whole cores and the
// CPUs of one cache.
func TestCPUsAreMeasured(t *testing.T) {
	n := newNode(t, machine(2, 1, 2, 2, 2), "0", "full-pcpus-only") // node 0: 0-1,4-5; node 1: 2-3,6-7
	registry := prometheus.NewRegistry()
	n.register(registry)
	if pod := n.pod("p", 0, "4"); n.admit(pod, topologymanager.None) != nil || n.cpus(pod) != "2-3,6-7" {
		t.Fatalf("the container has %s", n.cpus(pod))
	}
	if err := n.admit(n.pod("q", 0, "3"), topologymanager.None); err == nil {
		t.Error("a container has a part of a core")
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			text := strings.TrimPrefix(family.GetName(), "kubelet_")
			for _, label := range metric.GetLabel() {
				text += " " + label.GetValue()
			}
			got = append(got, fmt.Sprint(text, " ", metric.GetGauge().GetValue()+metric.GetCounter().GetValue()))
		}
	}
	if want := []string{
		"container_aligned_compute_resources_count physical_cpu container 1",
		"container_aligned_compute_resources_count uncore_cache container 1",
		"container_aligned_compute_resources_failure_count physical_cpu container 1",
		"cpu_manager_allocation_per_numa 0 0", "cpu_manager_allocation_per_numa 1 4",
		"cpu_manager_exclusive_cpu_allocation_count 4",
		"cpu_manager_pinning_errors_total 1", "cpu_manager_pinning_requests_total 2",
		"cpu_manager_shared_pool_size_millicores 3000",
	}; !slices.Equal(got, want) {
		t.Errorf("the metrics are\n%s, want\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
