package nodelabel

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

func nodeWith(keys ...string) *framework.NodeInfo {
	node := &v1.Node{}
	node.Labels = map[string]string{}
	for _, key := range keys {
		node.Labels[key] = "any"
	}
	n := framework.NewNodeInfo("node")
	n.SetNode(node)
	return n
}

func TestNodeLabel(t *testing.T) {
	a := Arguments{PresentLabels: []string{"a"}, AbsentLabels: []string{"b"}, PresentLabelsPreference: []string{"c", "d"}, AbsentLabelsPreference: []string{"e"}}
	for _, test := range []struct {
		name  string
		node  *framework.NodeInfo
		why   string
		score int64
	}{
		{"everything as wanted", nodeWith("a", "c", "d"), "", 100},
		{"nothing is there", nodeWith(), "node(s) didn't have the requested labels", 33},
		{"one must not be there", nodeWith("a", "b", "c"), "node(s) didn't have the requested labels", 66},
		{"one should not be there", nodeWith("a", "e"), "", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, err := Factory().New(t.Context(), &a, nil)
			if err != nil {
				t.Fatal(err)
			}
			score, _ := p.(*plugin).Score(t.Context(), nil, nil, test.node)
			if why := p.(*plugin).Filter(t.Context(), nil, nil, test.node).Message(); why != test.why || score != test.score {
				t.Errorf("%q, score %d; want %q, %d", why, score, test.why, test.score)
			}
		})
	}
	if errs := Factory().Validate(nil, &Arguments{PresentLabels: []string{"a"}, AbsentLabels: []string{"a"}}); len(errs) == 0 {
		t.Error("a label that must and must not be there is accepted")
	}
}
