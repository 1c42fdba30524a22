package memorymanager

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/kubelet/topologymanager"
)

// What the topology manager has chosen is extended where it is not enough, and
// refused where nodes would serve both single containers and containers of several
// nodes.
func TestChoiceOfTheTopologyManager(t *testing.T) {
	for name, test := range map[string]struct {
		before    string // what another container has
		memory    string
		chosen    topologymanager.Mask // 0 for any nodes
		preferred bool
		want      string // the nodes, or an error
	}{
		"any node":                                {"1Gi", "2Gi", 0, false, "0"},
		"no node has enough":                      {"6Gi", "10Gi", 0, false, "failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"},
		"all that have enough are worse":          {"10Gi", "2Gi", 0, true, "failed to find the default preferred hint"},
		"the node has enough":                     {"1Gi", "2Gi", topologymanager.NewMask(1), true, "1"},
		"two nodes have enough":                   {"", "10Gi", topologymanager.NewMask(1), true, "0,1"},
		"the other node serves alone":             {"6Gi", "10Gi", topologymanager.NewMask(1), false, "failed to find NUMA nodes to extend the current topology hint"},
		"two nodes have enough, but one would do": {"10Gi", "2Gi", topologymanager.NewMask(0), true, "failed to find the extended preferred hint"},
		"a node of a group":                       {"10Gi", "2Gi", topologymanager.NewMask(1), false, "1"},
		"one of the nodes serves alone":           {"6Gi", "3Gi", topologymanager.NewMask(0, 1), false, "preferred hint violates NUMA node allocation"},
	} {
		n := newNode(t)
		if test.before != "" {
			if err := n.admit(n.pod("before", 0, test.before), topologymanager.None); err != nil {
				t.Fatal(err)
			}
		}
		pod := n.pod("p", 0, test.memory)
		r := topologymanager.Request{Pod: pod, Container: &pod.Spec.Containers[0], Affinity: topologymanager.Hint{Preferred: test.preferred}}
		if test.chosen != 0 {
			r.Affinity.Affinity = &test.chosen
		}
		got := ""
		if err := n.Allocate(t.Context(), r); err != nil {
			got = strings.TrimPrefix(err.Error(), "[memorymanager] ")
		} else {
			got = n.Nodes(pod.UID, "a").String()
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

// The memory of an init container goes to the containers after it, and counts
// once. Sidecars keep theirs.
func TestInitContainersPassMemoryOn(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	for _, test := range []struct {
		init, containers string // how many Gi each asks for, with a * for a sidecar
		want, free       string // how many Gi are recorded for each, and are free
	}{
		{"6", "4 3", "0 4 3", "1 9"},
		{"1 2", "3 4", "0 0 3 4", "1 9"},
		{"4 3", "2 1", "0 1 2 1", "4 9"},
		{"7 4", "4 3", "0 0 4 3", "1 9"},
		{"7 4", "5 2", "0 0 5 2", "1 9"},
		{"1 2* 3 4*", "1", "0 2 0 4 1", "1 9"},
	} {
		n := newNode(t)
		var sizes []string
		asks := append(strings.Fields(test.init), strings.Fields(test.containers)...)
		for _, ask := range asks {
			sizes = append(sizes, strings.TrimSuffix(ask, "*")+"Gi")
		}
		pod := n.pod("p", len(strings.Fields(test.init)), sizes...)
		for i := range pod.Spec.InitContainers {
			if strings.HasSuffix(asks[i], "*") {
				pod.Spec.InitContainers[i].RestartPolicy = &always
			}
		}
		if err := n.admit(pod, topologymanager.None); err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := range asks {
			for _, b := range n.Blocks(pod.UID, string(rune('a'+i))) {
				got = append(got, fmt.Sprint(b.Size/gi))
			}
		}
		if text := strings.Join(got, " "); text != test.want || n.free() != test.free {
			t.Errorf("%s, then %s: %s, free %s; want %s, free %s", test.init, test.containers, text, n.free(), test.want, test.free)
		}
		if all := n.machine()[0].NumberOfAssignments; all != len(asks) { // as upstream's kubelets count them
			t.Errorf("%s, then %s: %d assignments, want %d", test.init, test.containers, all, len(asks))
		}
	}
}

// The memory of an init container also goes to the containers after it if the
// kubelet was killed before they had any.
func TestMemoryIsPassedOnAfterARestart(t *testing.T) {
	n := newNode(t)
	pod := n.pod("p", 1, "6Gi", "4Gi")
	if err := n.Allocate(t.Context(), topologymanager.Request{Pod: pod, Container: &pod.Spec.InitContainers[0], Init: true}); err != nil {
		t.Fatal(err)
	}
	if err := n.start(Static); err != nil {
		t.Fatal(err)
	}
	if err := n.admit(pod, topologymanager.None); err != nil || n.free() != "2 9" {
		t.Errorf("free are %s (%v)", n.free(), err)
	}
}
