package pod

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// proposed returns a resize of a pod that has 1 CPU, deferred so many seconds ago.
func proposed(name, asks string, seconds int, change ...func(p *v1.Pod)) *proposal {
	of := func(amount string) *v1.Pod {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Resources: cpu(amount)}}}}
		for _, c := range change {
			c(p)
		}
		return p
	}
	return &proposal{pod: of(asks), allocated: of("1"), since: time.Unix(1_800_000_000, 0).Add(-time.Duration(seconds) * time.Second)}
}

// prior gives a pod a priority.
func prior(priority int32) func(p *v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Priority = &priority }
}

// Resizes are tried in upstream's order.
func TestOrderOfResizes(t *testing.T) {
	untried := proposed("untried", "2", 0)
	untried.since = time.Time{}
	want := []*proposal{
		proposed("smaller", "500m", 1),
		proposed("important", "2", 2, prior(100)),
		proposed("guaranteed", "2", 3, func(p *v1.Pod) { p.Status.QOSClass = v1.PodQOSGuaranteed }),
		proposed("first", "2", 9),
		proposed("second", "2", 8),
		untried,
		proposed("unimportant", "2", 10, prior(-1)),
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, (*proposal).compare)
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("resize %d is that of %s, want %s", i, got[i].pod.Name, want[i].pod.Name)
		}
	}
}

// A resize has to fit beside those that come before it and fit, whatever waits without
// room or comes after it.
func TestResizesThatComeBefore(t *testing.T) {
	low, high := proposed("low", "2", 5), proposed("high", "2", 1, prior(10))
	waiting := []*proposal{proposed("later", "2", 4), low, high, proposed("huge", "9", 3, prior(100))}
	var active []*v1.Pod
	for _, p := range waiting {
		active = append(active, p.allocated)
	}
	ahead, others := low.after(waiting, active, func(p *proposal, others []*v1.Pod) bool { // on a node with 5 CPUs
		sum := p.pod.Spec.Containers[0].Resources.Requests.Cpu().DeepCopy()
		for _, other := range others {
			sum.Add(*other.Spec.Containers[0].Resources.Requests.Cpu())
		}
		return len(others) == 3 && sum.Cmp(resource.MustParse("5")) <= 0
	})
	if len(ahead) != 1 || ahead[0] != high {
		t.Errorf("%d resizes come before it", len(ahead))
	}
	got := map[string]string{}
	for _, p := range others {
		got[p.Name] = p.Spec.Containers[0].Resources.Requests.Cpu().String()
	}
	if len(others) != 3 || got["high"] != "2" || got["huge"] != "1" || got["later"] != "1" {
		t.Errorf("it has to fit beside %v", got)
	}
}

// A resize that an earlier kubelet has deferred keeps its turn.
func TestDeferredResizesKeepTheirTurns(t *testing.T) {
	since := metav1.NewTime(time.Unix(1_000_000_000, 0))
	waits := v1.PodCondition{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: v1.PodReasonDeferred, LastTransitionTime: since}
	b := newInbox(&v1.Pod{Status: v1.PodStatus{Conditions: []v1.PodCondition{waits}}})
	if got := b.deferredSince(); !got.Equal(since.Time) {
		t.Errorf("after a restart it waits since %v", got)
	}
	b.setPending(pendingResize(v1.PodReasonDeferred, "used: 4"))
	if got := b.deferredSince(); !got.Equal(since.Time) {
		t.Errorf("when it was tried again it waits since %v", got)
	}
	b.setPending(pendingResize(v1.PodReasonInfeasible, "too big"))
	if got := b.deferredSince(); !got.IsZero() {
		t.Errorf("an infeasible one waits since %v", got)
	}
	b.setPending(pendingResize(v1.PodReasonDeferred, "used: 4"))
	if got := b.deferredSince(); !got.After(since.Time) {
		t.Errorf("one that is feasible now waits since %v", got)
	}
	timeless := newInbox(&v1.Pod{Status: v1.PodStatus{Conditions: []v1.PodCondition{{Type: waits.Type, Status: waits.Status, Reason: waits.Reason}}}})
	timeless.setPending(pendingResize(v1.PodReasonDeferred, "used: 4"))
	if timeless.deferredSince().IsZero() {
		t.Error("one whose condition has no time never waits")
	}
	finished := newInbox(&v1.Pod{Status: v1.PodStatus{Phase: v1.PodFailed, Conditions: []v1.PodCondition{waits}}})
	if got := finished.deferredSince(); !got.IsZero() {
		t.Errorf("that of a pod that has failed waits since %v", got)
	}
}
