package scheduler

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/plugintest"
	"github.com/coracle-io/coracle/internal/scheduler/queue"
)

// The queue asks a hint once for all pods to which the index of its plugin gives
// one key. So the hints must answer the same for two pods that differ only in what
// the key leaves out.
func TestHintsAgreeForOneKey(t *testing.T) {
	events, err := newProfileWith(t, queue.NewNominator(), plugintest.Informers(t), false).EventsToRegister(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	compared := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		one, other := drawAnyPod(t, "one"), drawAnyPod(t, "other")
		twin := one.DeepCopy()
		twin.Name, twin.UID = "twin", "twin"
		takeOver(twin, other, rapid.IntRange(0, 8).Draw(t, "part"))
		a, b := framework.NewPodInfo(one), framework.NewPodInfo(twin)
		happened := drawEvents(t)
		for plugin, hints := range events {
			for _, h := range hints {
				if h.Index == nil || h.Hint == nil || h.Index.OfPod(a) != h.Index.OfPod(b) {
					continue
				}
				for _, e := range happened {
					if !h.Event.Matches(e.event) {
						continue
					}
					compared[plugin]++
					if x, y := h.Hint(a, e.old, e.new), h.Hint(b, e.old, e.new); x != y {
						t.Fatalf("%s: %v on %s: %d for a pod and %d for one with the same key", plugin, e.event.Action, e.event.Resource, x, y)
					}
				}
			}
		}
	})
	for plugin, hints := range events {
		if len(hints) > 0 && hints[0].Index != nil && compared[plugin] < 10 {
			t.Errorf("%s: %d comparisons say too little", plugin, compared[plugin])
		}
	}
}

// takeOver copies one part of the pod from to p.
func takeOver(p, from *v1.Pod, part int) {
	switch part {
	case 0:
		p.Labels = from.Labels
	case 1:
		p.Spec.Tolerations = from.Spec.Tolerations
	case 2:
		p.Spec.NodeSelector = from.Spec.NodeSelector
	case 3:
		p.Spec.Affinity = from.Spec.Affinity
	case 4:
		p.Spec.TopologySpreadConstraints = from.Spec.TopologySpreadConstraints
	case 5:
		p.Spec.Containers, p.Spec.InitContainers = from.Spec.Containers, from.Spec.InitContainers
	case 6:
		p.Spec.Priority = new(int32(7))
	case 7:
		p.Spec.PreemptionPolicy = new(v1.PreemptNever)
	case 8:
		p.Namespace = "other"
	}
}

type happening struct {
	event    framework.ClusterEvent
	old, new any
}

// drawEvents draws a life of a pod on a node and one of a node.
func drawEvents(t *rapid.T) []happening {
	before, after := drawAnyPod(t, "before"), drawAnyPod(t, "after")
	before.Spec.NodeName, after.Spec.NodeName = "node", "node"
	was, is := drawNode(t, "node"), drawNode(t, "node")
	var out []happening
	for _, of := range []struct {
		resource      framework.EventResource
		before, after any
	}{{framework.AssignedPod, before, after}, {framework.Node, was, is}} {
		out = append(out,
			happening{framework.ClusterEvent{Resource: of.resource, Action: framework.Add}, nil, of.after},
			happening{framework.ClusterEvent{Resource: of.resource, Action: framework.Update}, of.before, of.after},
			happening{framework.ClusterEvent{Resource: of.resource, Action: framework.Delete}, of.before, nil},
		)
	}
	return out
}
