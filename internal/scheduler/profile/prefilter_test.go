package profile

import (
	"context"
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// rejecting rejects every pod in PreFilter with a code.
type rejecting struct{ code framework.Code }

func (*rejecting) Name() string { return "Rejecting" }
func (r *rejecting) PreFilter(context.Context, *framework.CycleState, *framework.PodInfo, *framework.Snapshot) (*framework.PreFilterResult, *framework.Status) {
	return nil, framework.NewStatus(r.code, r.Name(), "no")
}

// prepared rejects every node, and is right only after its PreFilter.
type prepared struct{ ready bool }

func (*prepared) Name() string { return "Prepared" }
func (p *prepared) PreFilter(context.Context, *framework.CycleState, *framework.PodInfo, *framework.Snapshot) (*framework.PreFilterResult, *framework.Status) {
	p.ready = true
	return nil, nil
}
func (p *prepared) Filter(context.Context, *framework.CycleState, *framework.PodInfo, *framework.NodeInfo) *framework.Status {
	if !p.ready {
		return framework.NewStatus(framework.Error, p.Name(), "not prepared")
	}
	return framework.NewStatus(framework.Unschedulable, p.Name(), "full")
}

// The trials of a preemption ask the filters although a plugin has rejected the pod.
func TestFiltersAfterPreFilterRejects(t *testing.T) {
	h := &framework.Handle{}
	other := &prepared{}
	p := &Profile{handle: h, cycles: framework.NewStateKey[*cycle](h), points: points{
		preFilter: []framework.PreFilterPlugin{&rejecting{framework.Unschedulable}, other}, filter: []framework.FilterPlugin{other},
	}}
	s := framework.NewSnapshot()
	s.SetNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	pod, state := framework.NewPodInfo(&v1.Pod{}), framework.NewCycleState(h)
	_, status := p.RunPreFilterPlugins(t.Context(), state, pod, s)
	if status.Code() != framework.Unschedulable || status.Message() != "no" {
		t.Errorf("PreFilter: %v", status)
	}
	c, _ := p.cycles.Get(state)
	if got := c.runFilters(t.Context(), state, pod, s.Node("a")); got.Message() != "full" {
		t.Errorf("Filter: %q, want full", got.Message())
	}
}

// narrowing leaves some of the nodes, and signs every pod.
type narrowing struct{ names map[string]bool }

func (*narrowing) Name() string { return "Narrowing" }
func (n *narrowing) PreFilter(context.Context, *framework.CycleState, *framework.PodInfo, *framework.Snapshot) (*framework.PreFilterResult, *framework.Status) {
	return &framework.PreFilterResult{NodeNames: n.names}, nil
}
func (*narrowing) Filter(context.Context, *framework.CycleState, *framework.PodInfo, *framework.NodeInfo) *framework.Status {
	return nil
}
func (*narrowing) SignPod(*framework.PodInfo) (string, bool) { return "same", true }

// another is a narrowing plugin with a name of its own.
type another struct {
	*narrowing
	name string
}

func (a another) Name() string { return a.name }

// Plugins that leave no node together have all rejected the pod.
func TestPluginsThatLeaveNoNode(t *testing.T) {
	s := framework.NewSnapshot()
	for _, name := range []string{"a", "b"} {
		s.SetNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	h := &framework.Handle{}
	p := &Profile{handle: h, cycles: framework.NewStateKey[*cycle](h), points: points{preFilter: []framework.PreFilterPlugin{
		another{&narrowing{map[string]bool{"a": true}}, "Second"}, another{&narrowing{map[string]bool{"b": true}}, "First"},
	}}}
	result, status := p.RunPreFilterPlugins(t.Context(), framework.NewCycleState(h), framework.NewPodInfo(&v1.Pod{}), s)
	if want := "node(s) didn't satisfy plugin(s) [First Second] simultaneously"; status.Code() != framework.UnschedulableAndUnresolvable || status.Message() != want {
		t.Errorf("%v %q, want %q", status.Code(), status.Message(), want)
	}
	if result == nil || !slices.Equal(result.Plugins, []string{"First", "Second"}) {
		t.Errorf("%+v, want both plugins", result)
	}
}

// A pod of a DaemonSet, for which PreFilter leaves one node, does not push out
// the results of other pods.
func TestResultsOfFewNodesAreNotShared(t *testing.T) {
	s := framework.NewSnapshot()
	for i := range 64 {
		s.SetNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}})
	}
	for _, test := range []struct {
		left   int
		shared bool
	}{{1, false}, {32, true}} {
		plugin := &narrowing{map[string]bool{}}
		for i := range test.left {
			plugin.names[fmt.Sprint("n", i)] = true
		}
		h := &framework.Handle{}
		p := &Profile{handle: h, cycles: framework.NewStateKey[*cycle](h), points: points{preFilter: []framework.PreFilterPlugin{plugin}, filter: []framework.FilterPlugin{plugin}}}
		p.sharing = newSharing(&p.points)
		pod, state := framework.NewPodInfo(&v1.Pod{}), framework.NewCycleState(h)
		if _, status := p.RunPreFilterPlugins(t.Context(), state, pod, s); !status.IsSuccess() {
			t.Fatal(status)
		}
		if got := len(p.sharing.bySignature) > 0; got != test.shared {
			t.Errorf("%d of 64 nodes are left, shared: %v", test.left, got)
		}
	}
}
