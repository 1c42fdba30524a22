package selectorspread

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

func TestSelectorSpread(t *testing.T) {
	for _, test := range []struct {
		name  string
		zones []string // of each node; "" is none
		pods  []int    // of the service on each node
		want  []int64
	}{
		{"no pods yet", []string{"", ""}, []int{0, 0}, []int64{100, 100}},
		{"fewer are better", []string{"", "", ""}, []int{0, 1, 2}, []int64{100, 50, 0}},
		{"zones weigh two thirds", []string{"a", "a", "b"}, []int{2, 0, 2}, []int64{0, 33, 0}},
		{"a node without zone counts alone", []string{"a", ""}, []int{1, 1}, []int64{0, 0}},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := &framework.Handle{}
			made, err := Factory().New(t.Context(), nil, h)
			if err != nil {
				t.Fatal(err)
			}
			p := made.(*plugin)
			p.selectorOf = func(*v1.Pod) labels.Selector { return labels.SelectorFromSet(labels.Set{"app": "web"}) }
			snapshot := framework.NewSnapshot()
			for i, zone := range test.zones {
				node := &v1.Node{}
				node.Name = fmt.Sprint("node-", i)
				if zone != "" {
					node.Labels = map[string]string{v1.LabelTopologyZone: zone}
				}
				snapshot.SetNode(node)
				for k := range test.pods[i] {
					snapshot.AddPod(podOf(fmt.Sprint(i, "-", k)), node.Name)
				}
			}
			state := framework.NewCycleState(h)
			if s := p.PreScore(t.Context(), state, podOf("new"), snapshot, snapshot.Nodes()); !s.IsSuccess() {
				t.Fatal(s.Code())
			}
			var got []int64
			for _, n := range snapshot.Nodes() {
				score, _ := p.Score(t.Context(), state, podOf("new"), n)
				got = append(got, score)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

func podOf(name string) *framework.PodInfo {
	p := &v1.Pod{}
	p.Namespace, p.Name, p.UID, p.Labels = "default", name, types.UID(name), map[string]string{"app": "web"}
	return framework.NewPodInfo(p)
}
