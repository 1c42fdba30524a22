package nodeaffinity

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	kubescheduler "k8s.io/kube-scheduler/config/v1"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

func term(key, value string) v1.NodeSelectorTerm {
	return v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: key, Operator: v1.NodeSelectorOpIn, Values: []string{value}}}}
}

func required(key, value string) *v1.NodeAffinity {
	return &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{term(key, value)}}}
}

func preferred(key, value string, weight int32) *v1.NodeAffinity {
	return &v1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{{Weight: weight, Preference: term(key, value)}}}
}

func TestAddedAffinity(t *testing.T) {
	const own, enforced = "node(s) didn't match Pod's node affinity/selector", "node(s) didn't match scheduler-enforced node affinity"
	for _, test := range []struct {
		name       string
		added, pod *v1.NodeAffinity
		why        string
		score      int64
	}{
		{name: "none"},
		{name: "the pod's own matches", pod: required("disk", "ssd")},
		{name: "the pod's own does not", pod: required("disk", "hdd"), why: own},
		{name: "the added one matches", added: required("disk", "ssd")},
		{name: "the added one does not", added: required("disk", "hdd"), why: enforced},
		{name: "both must match", added: required("disk", "ssd"), pod: required("zone", "b"), why: own},
		{name: "the added one is named first", added: required("disk", "hdd"), pod: required("zone", "b"), why: enforced},
		{name: "preferences of the pod", pod: preferred("disk", "ssd", 7), score: 7},
		{name: "added preferences", added: preferred("disk", "ssd", 5), score: 5},
		{name: "the sum of both", added: preferred("disk", "ssd", 5), pod: preferred("zone", "a", 7), score: 12},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := &framework.Handle{}
			a := &kubescheduler.NodeAffinityArgs{AddedAffinity: test.added}
			if errs := Factory().Validate(nil, a); len(errs) > 0 {
				t.Fatal(errs)
			}
			made, err := Factory().New(t.Context(), a, h)
			if err != nil {
				t.Fatal(err)
			}
			p, state := made.(*plugin), framework.NewCycleState(h)
			n, apiPod := framework.NewNodeInfo("node"), &v1.Pod{}
			n.SetNode(&v1.Node{})
			n.Node.Labels = map[string]string{"disk": "ssd", "zone": "a"}
			apiPod.Spec.Affinity = &v1.Affinity{NodeAffinity: test.pod}
			pod, why, score := framework.NewPodInfo(apiPod), "", int64(0)
			if _, s := p.PreFilter(t.Context(), state, pod, nil); !s.IsSkip() {
				why = p.Filter(t.Context(), state, pod, n).Message()
			}
			if s := p.PreScore(t.Context(), state, pod, nil, nil); !s.IsSkip() {
				score, _ = p.Score(t.Context(), state, pod, n)
			}
			if why != test.why || score != test.score {
				t.Errorf("%q, score %d; want %q, %d", why, score, test.why, test.score)
			}
		})
	}
	if errs := Factory().Validate(nil, &kubescheduler.NodeAffinityArgs{AddedAffinity: required("disk", "a b")}); len(errs) == 0 {
		t.Error("a value that no label can have is accepted")
	}
}
