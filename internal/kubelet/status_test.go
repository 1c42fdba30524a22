package kubelet

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A pod that another client has ended is ended on the node as well, and does not come
// back. Any other phase is the kubelet's to say.
func TestPhaseByAnotherClient(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.create(pod("web"))
		b.after(time.Minute)
		write := func(phase v1.PodPhase) {
			t.Helper()
			p := b.get("web").DeepCopy()
			p.Status.Phase, p.Status.Reason = phase, "Somebody"
			if _, err := b.api.CoreV1().Pods("default").UpdateStatus(t.Context(), p, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			b.after(time.Minute)
		}
		write(v1.PodPending)
		if p := b.get("web"); p.Status.Phase != v1.PodRunning || b.live("main") == "" {
			t.Errorf("after another client wrote Pending, the pod is %s", p.Status.Phase)
		}
		write(v1.PodFailed)
		if p := b.get("web"); p.Status.Phase != v1.PodFailed || p.Status.Reason != "Somebody" || b.live("main") != "" {
			t.Errorf("after another client wrote Failed, the pod is %s (%s), and runs the container %q", p.Status.Phase, p.Status.Reason, b.live("main"))
		}
	})
}

// The control plane marks the pods of a node that it does not hear from as not
// ready. A kubelet that is back says what they really are.
func TestReadyAgainAfterOthersSaidNot(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.create(pod("web"))
		b.after(time.Second)
		p := b.get("web").DeepCopy()
		if ready := conditionOf(p, v1.PodReady); ready != v1.ConditionTrue {
			t.Fatalf("Ready is %s", ready)
		}
		for i := range p.Status.Conditions {
			if c := &p.Status.Conditions[i]; c.Type == v1.PodReady {
				c.Status = v1.ConditionFalse
			}
		}
		if _, err := b.api.CoreV1().Pods("default").UpdateStatus(t.Context(), p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if ready := conditionOf(b.get("web"), v1.PodReady); ready != v1.ConditionTrue {
			t.Errorf("after another client wrote False, Ready is %s", ready)
		}
	})
}

// A pod with a readiness gate is ready once its containers are, and whoever the gate
// is for says so.
func TestReadinessGate(t *testing.T) {
	const gate = "example.com/traffic"
	run(t, func(t *testing.T, b *bench) {
		b.create(pod("web", func(p *v1.Pod) { p.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: gate}} }))
		b.after(time.Second)
		say := func(status v1.ConditionStatus) {
			t.Helper()
			p := b.get("web").DeepCopy()
			p.Status.Conditions = slices.DeleteFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == gate })
			p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: gate, Status: status})
			if _, err := b.api.CoreV1().Pods("default").UpdateStatus(t.Context(), p, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			b.after(time.Second)
		}
		is := func(want v1.ConditionStatus) {
			t.Helper()
			p := b.get("web")
			if ready, containers := conditionOf(p, v1.PodReady), conditionOf(p, v1.ContainersReady); ready != want || containers != v1.ConditionTrue {
				t.Errorf("Ready is %s, want %s; ContainersReady is %s: %+v", ready, want, containers, p.Status.Conditions)
			}
		}
		is(v1.ConditionFalse)
		say(v1.ConditionTrue)
		is(v1.ConditionTrue)
		say(v1.ConditionFalse)
		is(v1.ConditionFalse)
	})
}
