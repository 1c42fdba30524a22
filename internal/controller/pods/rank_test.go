package pods

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Each pod must be deleted before the one that follows it.
func TestSelectForDeletion(t *testing.T) {
	now := time.Unix(1000000, 0)
	pod := func(name string, change func(p *v1.Pod)) *v1.Pod {
		p := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))},
			Spec:       v1.PodSpec{NodeName: "quiet"},
			Status: v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{{
				Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour)),
			}}},
		}
		change(p)
		return p
	}
	want := []*v1.Pod{
		pod("unscheduled", func(p *v1.Pod) { p.Spec.NodeName = "" }),
		pod("pending", func(p *v1.Pod) { p.Status.Phase = v1.PodPending }),
		pod("unknown", func(p *v1.Pod) { p.Status.Phase = v1.PodUnknown }),
		pod("unready", func(p *v1.Pod) { p.Status.Conditions = nil }),
		pod("cheap", func(p *v1.Pod) { p.Annotations = map[string]string{v1.PodDeletionCost: "-5"} }),
		pod("crowded", func(p *v1.Pod) { p.Spec.NodeName = "crowded" }),
		pod("ready-lately", func(p *v1.Pod) {
			p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(-time.Minute))
		}),
		pod("restarted", func(p *v1.Pod) { p.Status.ContainerStatuses = []v1.ContainerStatus{{RestartCount: 3}} }),
		pod("young", func(p *v1.Pod) { p.CreationTimestamp = metav1.NewTime(now.Add(-time.Minute)) }),
		pod("z-last", func(p *v1.Pod) {}),
	}
	shuffled := make([]*v1.Pod, 0, len(want))
	for i := range want {
		shuffled = append(shuffled, want[(i*7+3)%len(want)])
	}
	names := func(pods []*v1.Pod) string {
		var out []string
		for _, p := range pods {
			out = append(out, p.Name)
		}
		return strings.Join(out, " ")
	}
	got := SelectForDeletion(shuffled, len(want)-1, DeletionOrder{Colocated: map[string]int{"quiet": 1, "crowded": 2}, ByCost: true, Now: now})
	if names(got) != names(want[:len(want)-1]) {
		t.Errorf("got  %s\nwant %s", names(got), names(want))
	}
}

// Only ReplicaSets respect the deletion cost, unless the feature gate is off.
func TestDeletionCostDoesNotCount(t *testing.T) {
	expensive := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a", Annotations: map[string]string{v1.PodDeletionCost: "100"}}}
	free := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "b", UID: "b"}}
	for byCost, want := range map[bool]string{true: "b", false: "a"} {
		if got := SelectForDeletion([]*v1.Pod{expensive, free}, 1, DeletionOrder{ByCost: byCost}); got[0].Name != want {
			t.Errorf("by cost %v: %s is deleted, want %s", byCost, got[0].Name, want)
		}
	}
}
