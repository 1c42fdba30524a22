package scheduler

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

func TestNumFeasibleNodesToFind(t *testing.T) {
	for _, test := range []struct {
		nodes      int
		percentage int32
		want       int
	}{
		{10, 0, 10}, {10, 40, 10}, {100, 1, 100}, {1000, 0, 420}, {1000, 40, 400}, {1000, 1, 100}, {1000, 100, 1000}, {6000, 0, 300}, {6000, 40, 2400},
	} {
		if got := numFeasibleNodesToFind(test.nodes, test.percentage); got != test.want {
			t.Errorf("%d %% of %d nodes: %d, want %d", test.percentage, test.nodes, got, test.want)
		}
	}
}

// A search ends when it has found enough nodes, and the next one goes on from there.
func TestEveryNodeGetsItsTurn(t *testing.T) {
	const all, enough = 500, 150
	var nodes []*v1.Node
	for i := range all {
		nodes = append(nodes, node(fmt.Sprint("n", i)))
	}
	p, a, snapshot := newProfile(t, nil), newAlgorithm(1), snapshotOf(nodes, nil)
	a.percentage = 30
	for i := range 8 {
		if _, err := a.schedule(t.Context(), p, p.NewCycleState(), framework.NewPodInfo(pod("p")), "", snapshot); err != nil {
			t.Fatal(err)
		}
		if want := (i + 1) * enough % all; len(a.feasible) != enough || a.start != want {
			t.Errorf("turn %d: %d nodes, the next one begins at %d; want %d and %d", i, len(a.feasible), a.start, enough, want)
		}
	}
}

// The node that is reserved for a pod is chosen without a look at the others, unless it
// cannot take the pod.
func TestTheNominatedNodeIsAskedFirst(t *testing.T) {
	for _, test := range []struct {
		name, nominated string
		options         []nodeOption // of node b
		chosen          bool
		visited         int // nodes in the search
	}{
		{"it fits", "b", nil, true, 0},
		{"none is reserved", "", nil, false, 3},
		{"it does not fit", "b", []nodeOption{cordoned}, false, 3},
		{"it is gone", "d", nil, false, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			snapshot := snapshotOf([]*v1.Node{node("a"), node("b", test.options...), node("c")}, []*v1.Pod{running(pod("r", requests("1", "1Gi")), "b")})
			p, a := newProfile(t, nil), newAlgorithm(1)
			best, err := a.schedule(t.Context(), p, p.NewCycleState(), framework.NewPodInfo(pod("p", requests("500m", "1Gi"))), test.nominated, snapshot)
			if err != nil {
				t.Fatal(err)
			}
			if (best.Name == "b") != test.chosen || len(a.statuses) != test.visited {
				t.Errorf("%s after %d nodes were visited, want %d", best.Name, len(a.statuses), test.visited)
			}
		})
	}
}
