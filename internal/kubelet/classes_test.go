package kubelet

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestServiceClassesShareTheCPU(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		shares := func(group string) int64 { return b.groups.Get(group).GetCpuShares() }
		if got := shares("/kubepods"); got != 4096 {
			t.Errorf("all pods have %d shares of 4 CPUs", got)
		}
		if got := b.groups.Get("/kubepods").GetMemoryLimitInBytes(); got != 8<<30 {
			t.Errorf("all pods may use %d bytes of 8 GiB", got)
		}
		if best, burst := shares("/kubepods/besteffort"), shares("/kubepods/burstable"); best != 2 || burst != 2 {
			t.Errorf("without pods: best effort %d, burstable %d", best, burst)
		}
		b.create(pod("burst", func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: quantity("500m")}
		}))
		if got := shares("/kubepods/burstable"); got != 512 {
			t.Errorf("burstable pods have %d shares, want 512", got)
		}
	})
}
