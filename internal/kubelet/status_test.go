package kubelet

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
