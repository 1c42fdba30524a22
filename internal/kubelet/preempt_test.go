package kubelet

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// A critical pod that lacks resources has less important pods evicted, and starts when
// they have ended. Other pods are rejected.
func TestCriticalPodPreempts(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		requesting := func(cpu string, priority int32) func(*v1.Pod) {
			return func(p *v1.Pod) {
				p.Spec.Priority = &priority
				p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: quantity(cpu)}
			}
		}
		phase := func(name string) v1.PodPhase { return b.get(name).Status.Phase }
		b.create(pod("small", requesting("500m", 0)))
		b.create(pod("large", requesting("3", 0)))
		b.create(pod("system", requesting("500m", 2_000_000_000)))
		b.after(time.Minute)
		b.create(pod("ordinary", requesting("1", 1000)))
		b.after(time.Minute)
		if phase("ordinary") != v1.PodFailed || phase("large") != v1.PodRunning {
			t.Fatalf("the ordinary pod is %s, the large one %s", phase("ordinary"), phase("large"))
		}
		b.create(pod("critical", requesting("2", 2_000_000_000)))
		b.after(2 * time.Minute)
		for name, want := range map[string]v1.PodPhase{"critical": v1.PodRunning, "large": v1.PodFailed, "small": v1.PodRunning, "system": v1.PodRunning} {
			if got := phase(name); got != want {
				t.Errorf("%s is %s, want %s", name, got, want)
			}
		}
		large := b.get("large")
		if large.Status.Reason != "Preempting" || large.Status.Message != "Preempted in order to admit critical pod" || conditionOf(large, v1.DisruptionTarget) != v1.ConditionTrue {
			t.Errorf("the evicted pod has the status %+v", large.Status)
		}
		if n := b.metrics()["kubelet_preemptions,cpu"]; n != 1 {
			t.Errorf("%v preemptions are counted", n)
		}
		b.create(pod("too-large", requesting("4", 2_000_000_000)))
		b.after(time.Minute)
		if phase("too-large") != v1.PodFailed || phase("critical") != v1.PodRunning || phase("small") != v1.PodRunning {
			t.Errorf("for a pod that does not fit anyway: it is %s, the critical one %s, the small one %s", phase("too-large"), phase("critical"), phase("small"))
		}
	})
}
