package profile

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// panicking panics when v2 is removed, and when it is to undo.
type panicking struct{ bad bool }

func (*panicking) Name() string { return "X" }
func (e *panicking) AddPod(context.Context, *framework.CycleState, *framework.PodInfo, *framework.PodInfo, *framework.NodeInfo) *framework.Status {
	if e.bad {
		panic("add")
	}
	return nil
}
func (e *panicking) RemovePod(_ context.Context, _ *framework.CycleState, _ *framework.PodInfo, r *framework.PodInfo, _ *framework.NodeInfo) *framework.Status {
	if r.Pod.Name == "v2" {
		e.bad = true
		panic("remove")
	}
	return nil
}

// A plugin that panics in a trial, and again when the trial is undone, leaves
// the snapshot as it was.
func TestTrialIsUndoneDespitePanics(t *testing.T) {
	s := framework.NewSnapshot()
	s.SetNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	var pods []*framework.PodInfo
	for _, n := range []string{"v0", "v1", "v2"} {
		p := framework.NewPodInfo(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: n, UID: types.UID(n)}})
		pods = append(pods, p)
		s.AddPod(p, "a")
	}
	func() {
		defer func() { _ = recover() }()
		tr := &trial{ctx: t.Context(), cycle: &cycle{snapshot: s, extensions: []framework.PreFilterExtensions{&panicking{}}}, pod: pods[0]}
		defer tr.Revert()
		for _, p := range pods {
			tr.RemovePod(p, s.Node("a"))
		}
	}()
	if n := len(s.Node("a").Pods); n != 3 {
		t.Errorf("%d pods on the node after the trial, want 3", n)
	}
}
