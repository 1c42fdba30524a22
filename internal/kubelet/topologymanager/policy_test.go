package topologymanager

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/kubelet/topology"
)

// hint returns a preferred hint for nodes, or one that is not preferred if the
// first is -1.
func hint(nodes ...int) Hint {
	preferred := nodes[0] >= 0
	m := NewMask(nodes...)
	return Hint{Affinity: &m, Preferred: preferred}
}

// Each policy chooses the best combination of the hints of all resources, and
// rejects what it has to.
func TestMerge(t *testing.T) {
	for name, test := range map[string]struct {
		hints []Hints
		// The nodes, and the policies that reject the pod.
		want   string
		reject []string
	}{
		"no hints":               {[]Hints{nil, {}}, "0,1", nil},
		"no preference":          {[]Hints{{"a": nil}}, "0,1", nil},
		"impossible":             {[]Hints{{"a": {}}}, "0,1", []string{Restricted, SingleNUMANode}},
		"one node":               {[]Hints{{"a": {hint(0), hint(1)}}, {"b": {hint(1)}}}, "1", nil},
		"lower node":             {[]Hints{{"a": {hint(1), hint(0)}}}, "0", nil},
		"different nodes":        {[]Hints{{"a": {hint(0), hint(-1, 0, 1)}}, {"b": {hint(1), hint(-1, 0, 1)}}}, "0", []string{Restricted, SingleNUMANode}},
		"nothing in common":      {[]Hints{{"a": {hint(0)}}, {"b": {hint(1)}}}, "0,1", []string{Restricted, SingleNUMANode}},
		"two nodes are needed":   {[]Hints{{"a": {hint(0, 1)}}, {"b": {hint(0, 1)}}}, "0,1", []string{SingleNUMANode}},
		"only worse hints":       {[]Hints{{"a": {hint(-1, 0, 1)}}}, "0,1", []string{Restricted, SingleNUMANode}},
		"preferred before small": {[]Hints{{"a": {hint(-1, 0), hint(0, 1)}}}, "0,1", []string{SingleNUMANode}},
		"one of two is worse":    {[]Hints{{"a": {hint(0)}}, {"b": {hint(-1, 0)}}}, "0", []string{Restricted, SingleNUMANode}},
		"one needs more nodes":   {[]Hints{{"a": {hint(1)}}, {"b": {hint(0, 1)}}}, "1", []string{Restricted, SingleNUMANode}},
		"anywhere, but worse":    {[]Hints{{"a": {{}}}}, "0,1", []string{Restricted, SingleNUMANode}},
		"anywhere":               {[]Hints{{"a": {{Preferred: true}}}}, "0,1", nil},
		"one has no preference":  {[]Hints{{"a": {hint(0), hint(1), hint(-1, 0, 1)}}, nil}, "0", nil},
		"of one provider":        {[]Hints{{"a": {hint(1), hint(-1, 0, 1)}, "b": {hint(0), hint(1), hint(-1, 0, 1)}}}, "1", nil},
	} {
		for _, policyName := range []string{BestEffort, Restricted, SingleNUMANode} {
			p := &policy{name: policyName, nodes: []int{0, 1}}
			got, ok := p.merge(test.hints)
			if rejects := slices.Contains(test.reject, policyName); ok == rejects {
				t.Errorf("%s: %s admits: %t", name, policyName, ok)
			}
			text := "0,1" // of a single node that may be any
			if got.Affinity != nil {
				text = got.Affinity.String()
			}
			if ok && text != test.want {
				t.Errorf("%s: %s chooses %s, want %s", name, policyName, text, test.want)
			}
		}
	}
}

// Of hints that are not preferred, the one wins that has as many nodes as the
// resource that needs most: fewer nodes would not do, more are further apart.
func TestHintsThatAreNotPreferred(t *testing.T) {
	for want, hints := range map[string][]Hint{
		"0,1":   {hint(-1, 0, 1)},
		"0,3":   {hint(-1, 0, 3)},
		"2,3":   {hint(-1, 2, 3)},
		"1,2":   {hint(-1, 1, 2), hint(-1, 2, 3)},
		"1,3":   {hint(-1, 1, 2, 3), hint(-1, 1, 3), hint(-1, 2, 3)},
		"0,1,2": {hint(-1, 0, 1, 2)},
	} {
		p := &policy{name: BestEffort, nodes: []int{0, 1, 2, 3}}
		got, _ := p.merge([]Hints{{"a": {hint(-1, 0, 1, 2, 3), hint(-1, 0, 1)}}, {"b": hints}})
		if got.Affinity.String() != want || got.Preferred {
			t.Errorf("%s, preferred %t; want %s", got.Affinity, got.Preferred, want)
		}
	}
}

// everyChoice is the best of all combinations of hints, looked at one by one.
func everyChoice(p *policy, lists [][]Hint, widest int) Hint {
	all := NewMask(p.nodes...)
	best, found := Hint{Affinity: &all}, false
	var visit func(chosen []Hint)
	visit = func(chosen []Hint) {
		if len(chosen) < len(lists) {
			for _, h := range lists[len(chosen)] {
				visit(append(chosen, h))
			}
			return
		}
		merged, preferred, affinities := all, true, map[Mask]bool{}
		for _, h := range chosen {
			preferred = preferred && h.Preferred
			if h.Affinity != nil {
				merged &= *h.Affinity
				affinities[*h.Affinity] = true
			}
		}
		h := Hint{Affinity: &merged, Preferred: preferred && len(affinities) < 2}
		if merged != 0 && (!found || p.better(h, best, widest)) {
			best, found = h, true
		}
	}
	visit(nil)
	return best
}

// The choice is the best of all combinations, also of hints whose combinations
// are too many to look at.
func TestBestOfAllChoices(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		p := &policy{name: BestEffort, nodes: []int{0, 1, 2}}
		var lists [][]Hint
		widest := 0
		for range random.IntN(5) {
			var list []Hint
			least := 0
			for range 1 + random.IntN(4) {
				h := Hint{Preferred: random.IntN(2) == 0}
				if m := Mask(random.IntN(8)); m != 0 {
					h.Affinity = &m
					if least == 0 || m.Count() < least {
						least = m.Count()
					}
				}
				list = append(list, h)
			}
			lists, widest = append(lists, list), max(widest, least)
		}
		got, want := p.best(lists), everyChoice(p, lists, widest)
		if *got.Affinity != *want.Affinity || got.Preferred != want.Preferred {
			t.Fatalf("seed %d: %s preferred %t, want %s preferred %t", seed, got.Affinity, got.Preferred, want.Affinity, want.Preferred)
		}
	}
	hints := Hints{}
	for i := range 100 {
		hints[strconv.Itoa(i)] = []Hint{hint(0), hint(1), hint(-1, 0, 1)}
	}
	p := &policy{name: Restricted, nodes: []int{0, 1}}
	if got, ok := p.merge([]Hints{hints}); !ok || got.Affinity.String() != "0" {
		t.Errorf("of 100 resources: %s, admitted %t", got.Affinity, ok)
	}
}

// Of several sets of two nodes, the closest nodes are chosen if that is asked
// for.
func TestClosestNodes(t *testing.T) {
	machine := &topology.Machine{Nodes: []topology.Node{
		{ID: 0, Distances: []int{10, 30, 20}}, {ID: 1, Distances: []int{30, 10, 12}}, {ID: 2, Distances: []int{20, 12, 10}}}}
	for value, want := range map[string]string{"false": "0,1", "true": "1,2"} {
		c := &kubeletconfig.KubeletConfiguration{TopologyManagerPolicy: BestEffort, TopologyManagerPolicyOptions: map[string]string{"prefer-closest-numa-nodes": value}}
		m, err := New(c, machine, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := m.policy.merge([]Hints{{"a": {hint(0, 1), hint(0, 2), hint(1, 2)}}}); got.Affinity.String() != want {
			t.Errorf("prefer closest %s: %s, want %s", value, got.Affinity, want)
		}
	}
	machine.Nodes[0].Distances = nil
	c := &kubeletconfig.KubeletConfiguration{TopologyManagerPolicy: BestEffort, TopologyManagerPolicyOptions: map[string]string{"prefer-closest-numa-nodes": "true"}}
	if _, err := New(c, machine, nil); err == nil {
		t.Error("a machine that does not tell its distances is accepted")
	}
}

// Machines with too many nodes are refused.
func TestNumberOfNodes(t *testing.T) {
	for nodes, test := range map[int]struct{ option, want string }{
		8:  {"", ""},
		9:  {"", "unsupported on machines with more than 8 NUMA Nodes"},
		12: {"12", ""},
		21: {"64", "more than 20"},
	} {
		machine := &topology.Machine{}
		for id := range nodes {
			machine.Nodes = append(machine.Nodes, topology.Node{ID: id})
		}
		c := &kubeletconfig.KubeletConfiguration{TopologyManagerPolicy: Restricted}
		if test.option != "" {
			c.TopologyManagerPolicyOptions = map[string]string{"max-allowable-numa-nodes": test.option}
		}
		if _, err := New(c, machine, nil); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%d nodes: %v, want %q", nodes, err, test.want)
		}
	}
}

// provider gives containers what it says, and records what it was asked.
type provider struct {
	hints    map[string][]Hint // by container
	pod      []Hint
	fails    string // container whose allocation fails
	unneeded bool
	got      []string
	released []types.UID
}

func (p *provider) Hints(r Request) Hints  { return Hints{"r": p.hints[r.Container.Name]} }
func (p *provider) PodHints(*v1.Pod) Hints { return Hints{"r": p.pod} }
func (p *provider) Needs(*v1.Pod) bool     { return !p.unneeded }
func (p *provider) Release(uid types.UID)  { p.released = append(p.released, uid) }
func (p *provider) Allocate(_ context.Context, r Request) error {
	text := r.Container.Name + ":" + r.Affinity.Affinity.String()
	if r.Init {
		text += " init"
	}
	if r.Running {
		text += " running"
	}
	p.got = append(p.got, text)
	if p.fails == r.Container.Name {
		return errors.New("no more")
	}
	return nil
}

// In the scope container each container has an affinity of its own, in the scope
// pod all have the same.
func TestScopes(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	pod := &v1.Pod{}
	pod.UID = "uid"
	pod.Spec.InitContainers = []v1.Container{{Name: "init"}, {Name: "sidecar", RestartPolicy: &always}}
	pod.Spec.Containers = []v1.Container{{Name: "main"}}
	running := func(name string) bool { return name == "main" }
	for podScope, want := range map[bool]string{false: "init:0 init running|sidecar:1|main:0,1 running", true: "init:1 init running|sidecar:1|main:1 running"} {
		p := &provider{hints: map[string][]Hint{"init": {hint(0)}, "sidecar": {hint(1)}, "main": {hint(0, 1)}}, pod: []Hint{hint(1)}}
		m := NewFor(Restricted, []int{0, 1}, p)
		m.podScope = podScope
		if err := m.Admit(t.Context(), pod, running); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(p.got, "|"); got != want || len(p.released) > 0 {
			t.Errorf("scope pod %t: %s, released %v; want %s", podScope, got, p.released, want)
		}
	}
}

// A pod that is not admitted keeps nothing, unless a container of it runs.
func TestRejectedPodHasNothing(t *testing.T) {
	pod := &v1.Pod{}
	pod.UID = "uid"
	pod.Spec.Containers = []v1.Container{{Name: "one"}, {Name: "two"}}
	p := &provider{hints: map[string][]Hint{"one": {hint(0)}, "two": {hint(0)}}, fails: "two"}
	m := NewFor(BestEffort, []int{0, 1}, p)
	reason, message := Rejection(m.Admit(t.Context(), pod, func(string) bool { return false }))
	if reason != "UnexpectedAdmissionError" || message != "Allocate failed due to no more, which is unexpected" || !slices.Equal(p.released, []types.UID{"uid"}) {
		t.Errorf("%s: %s, released %v", reason, message, p.released)
	}
	if err := m.Admit(t.Context(), pod, func(name string) bool { return name == "one" }); err == nil || len(p.released) != 1 {
		t.Errorf("a pod that runs: %v, released %v", err, p.released)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	m.allocating <- struct{}{} // another pod has its turn
	if err := m.Admit(ended, pod, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A pod that needs nothing does not wait while the plugin of another pod's devices
// hangs.
func TestPodWithoutNeedsDoesNotWait(t *testing.T) {
	pod := &v1.Pod{}
	pod.Spec.Containers = []v1.Container{{Name: "one"}}
	for _, name := range []string{None, SingleNUMANode} {
		p := &provider{unneeded: true}
		m := NewFor(name, []int{0, 1}, p)
		m.allocating <- struct{}{} // the other pod has its turn
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := m.Admit(ended, pod, func(string) bool { return false }); err != nil || len(p.got) > 0 {
			t.Errorf("policy %s: %v, allocated %v", name, err, p.got)
		}
	}
}

// Sidecars run beside what comes after them, other init containers one by one.
func TestPodNeeds(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	for _, test := range []struct {
		init       string // how much each needs, with a * for a sidecar
		containers string
		want       int
	}{
		{"0", "0", 0},
		{"", "2", 2},
		{"2", "5", 5},
		{"5", "2", 5},
		{"2 4", "2 4", 6},
		{"1*", "1", 2},
		{"5 1* 2* 3*", "1", 7},
		{"5 1* 2* 5 3*", "1", 8},
		{"10* 200", "100", 210},
	} {
		pod := &v1.Pod{}
		for _, need := range strings.Fields(test.init) {
			c := v1.Container{Name: strings.TrimSuffix(need, "*")}
			if c.Name != need {
				c.RestartPolicy = &always
			}
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		}
		for _, need := range strings.Fields(test.containers) {
			pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: need})
		}
		got := PodNeeds(pod, func(c *v1.Container) int {
			n, err := strconv.Atoi(c.Name)
			if err != nil {
				t.Error(err)
			}
			return n
		})
		if got != test.want {
			t.Errorf("%s, then %s: %d, want %d", test.init, test.containers, got, test.want)
		}
	}
}

// The policy single-numa-node counts the containers, or pods by the scope, that have all
// resources of one NUMA node, and those that could not have them.
func TestAlignmentIsCounted(t *testing.T) {
	pod := &v1.Pod{}
	pod.UID = "uid"
	pod.Spec.Containers = []v1.Container{{Name: "one"}, {Name: "two"}}
	for name, test := range map[string]struct {
		policy   string
		podScope bool
		second   Hint // of the second container
		pod      Hint
		fails    string
		want     string // containers that are aligned and are not, and pods
	}{
		"containers":             {SingleNUMANode, false, hint(0), hint(0), "", "2 0 0 0"},
		"a container of two":     {SingleNUMANode, false, hint(0, 1), hint(0), "", "1 1 0 0"},
		"a container that fails": {SingleNUMANode, false, hint(0), hint(0), "two", "1 0 0 0"},
		"a pod":                  {SingleNUMANode, true, hint(0), hint(0), "", "0 0 1 0"},
		"a pod of two":           {SingleNUMANode, true, hint(0), hint(0, 1), "", "0 0 0 1"},
		"another policy":         {Restricted, false, hint(0), hint(0), "", "0 0 0 0"},
		"a pod of it":            {Restricted, true, hint(0), hint(0), "", "0 0 0 0"},
	} {
		p := &provider{hints: map[string][]Hint{"one": {hint(0)}, "two": {test.second}}, pod: []Hint{test.pod}, fails: test.fails}
		m := NewFor(test.policy, []int{0, 1}, p)
		m.podScope = test.podScope
		_ = m.Admit(t.Context(), pod, func(string) bool { return false }) // what it returns has tests of its own
		var got []string
		for _, counter := range []Alignment{m.metrics.containers, m.metrics.pods} {
			got = append(got, fmt.Sprint(testutil.ToFloat64(counter.Done)), fmt.Sprint(testutil.ToFloat64(counter.Failed)))
		}
		if text := strings.Join(got, " "); text != test.want {
			t.Errorf("%s: %s, want %s", name, text, test.want)
		}
	}
}
