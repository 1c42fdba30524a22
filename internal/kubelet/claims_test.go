package kubelet

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// An annotation that claims that a pod comes from a manifest has no effect.
func TestPodThatClaimsToBeStatic(t *testing.T) {
	claims := func(p *v1.Pod) {
		p.Annotations = map[string]string{"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": "1", "kubernetes.io/config.seen": "now"}
	}
	run(t, func(t *testing.T, b *bench) {
		b.create(pod("big", claims, func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: quantity("5")}
		}))
		b.after(time.Second)
		if p := b.get("big"); p.Status.Phase != v1.PodFailed || p.Status.Reason != "OutOfcpu" {
			t.Fatalf("a pod that does not fit: %+v", p.Status)
		}
		b.create(pod("web", claims))
		b.after(time.Second)
		if p := b.get("web"); p.Status.Phase != v1.PodRunning || p.Status.PodIP == "" {
			t.Fatalf("its status is not shown: %+v", p.Status)
		}
		b.delete("web", 30)
		b.after(time.Second)
		if b.get("web") != nil {
			t.Fatal("it cannot be deleted")
		}
		b.create(pod("mirror", claims, func(p *v1.Pod) { p.Annotations["kubernetes.io/config.mirror"] = "1" }))
		b.after(10 * time.Second)
		if len(b.containers()) > 0 {
			t.Fatalf("a mirror of nothing was run: %v", b.containers())
		}
	})
}
