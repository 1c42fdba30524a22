package interpodaffinity

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

func podWith(app, near, far string) *v1.Pod {
	terms := func(app string) []v1.PodAffinityTerm {
		if app == "" {
			return nil
		}
		return []v1.PodAffinityTerm{{TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}
	}
	p := &v1.Pod{}
	p.Namespace, p.Labels = "default", map[string]string{"app": app}
	p.Spec.Affinity = &v1.Affinity{
		PodAffinity:     &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms(near)},
		PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms(far)},
	}
	return p
}

func tiered(p *v1.Pod, tier string) *v1.Pod {
	p.Labels["tier"] = tier
	return p
}

func nodeIn(key string) *v1.Node {
	n := &v1.Node{}
	n.Labels = map[string]string{key: "a"}
	return n
}

func TestHints(t *testing.T) {
	events, err := (*plugin)(nil).EventsToRegister(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pod := framework.NewPodInfo(podWith("web", "db", "batch"))
	for _, test := range []struct {
		name     string
		resource framework.EventResource
		action   framework.ActionType
		old, new any
		want     framework.QueueingHint
	}{
		{"a pod comes that it wants to be near to", framework.AssignedPod, framework.Add, nil, podWith("db", "", ""), framework.Queue},
		{"another pod comes", framework.AssignedPod, framework.Add, nil, podWith("x", "", ""), framework.QueueSkip},
		{"a pod comes that it wants to be away from", framework.AssignedPod, framework.Add, nil, podWith("batch", "", ""), framework.QueueSkip},
		{"a pod leaves that it wants to be away from", framework.AssignedPod, framework.Delete, podWith("batch", "", ""), nil, framework.Queue},
		{"a pod leaves that wants to be away from it", framework.AssignedPod, framework.Delete, podWith("x", "", "web"), nil, framework.Queue},
		{"a pod leaves that wants to be away from others", framework.AssignedPod, framework.Delete, podWith("x", "", "x"), nil, framework.QueueSkip},
		{"a pod gets the label that is wanted", framework.AssignedPod, framework.UpdatePodLabel, podWith("x", "", ""), podWith("db", "", ""), framework.Queue},
		{"a pod loses the label that is unwanted", framework.AssignedPod, framework.UpdatePodLabel, podWith("batch", "", ""), podWith("x", "", ""), framework.Queue},
		{"a pod leaves that it wants to be near to", framework.AssignedPod, framework.Delete, podWith("db", "", ""), nil, framework.QueueSkip},
		{"a pod keeps the label that is wanted", framework.AssignedPod, framework.UpdatePodLabel, podWith("db", "", ""), tiered(podWith("db", "", ""), "a"), framework.QueueSkip},
		{"a pod keeps the label that is unwanted", framework.AssignedPod, framework.UpdatePodLabel, podWith("batch", "", ""), tiered(podWith("batch", "", ""), "a"), framework.QueueSkip},
		{"a node with the key comes", framework.Node, framework.Add, nil, nodeIn("zone"), framework.Queue},
		{"a node without the key comes", framework.Node, framework.Add, nil, nodeIn("rack"), framework.QueueSkip},
		{"a node loses the key", framework.Node, framework.UpdateNodeLabel, nodeIn("zone"), nodeIn("rack"), framework.Queue},
		{"a node's taints change", framework.Node, framework.UpdateNodeTaint, nodeIn("zone"), nodeIn("zone"), framework.QueueSkip},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, happened := framework.QueueSkip, framework.ClusterEvent{Resource: test.resource, Action: test.action}
			for _, e := range events {
				if e.Event.Matches(happened) && (e.Hint == nil || e.Hint(pod, test.old, test.new) == framework.Queue) {
					got = framework.Queue
				}
			}
			if got != test.want {
				t.Errorf("hint %d, want %d", got, test.want)
			}
		})
	}
}

// A pod helps an affinity of several terms if all of them select it. The last of them
// helps by leaving if the affinity selects the waiting pod itself.
func TestHintsOfSeveralTerms(t *testing.T) {
	near := func(p *v1.Pod) *framework.PodInfo {
		terms := &p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		*terms = append(*terms, v1.PodAffinityTerm{TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "a"}}})
		return framework.NewPodInfo(p)
	}
	other, self := near(podWith("web", "db", "")), near(tiered(podWith("db", "db", ""), "a"))
	both, one := tiered(podWith("db", "", ""), "a"), podWith("db", "", "")
	for _, test := range []struct {
		name     string
		pod      *framework.PodInfo
		old, new *v1.Pod
		want     framework.QueueingHint
	}{
		{"one that all select comes", other, nil, both, framework.Queue},
		{"one that a single term selects comes", other, nil, one, framework.QueueSkip},
		{"one is selected by all now", other, one, both, framework.Queue},
		{"one is no longer selected by all", other, both, one, framework.QueueSkip},
		{"one that is like the pod leaves", self, both, nil, framework.Queue},
		{"one that is half like the pod leaves", self, one, nil, framework.QueueSkip},
	} {
		if got := afterPod(test.pod, test.old, test.new); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}
