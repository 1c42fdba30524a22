package kubelet

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
)

// scarce is the memory of a process that a test makes short.
type scarce struct{ short atomic.Bool }

func (s *scarce) Limit() int64 { return 64 << 20 }

func (s *scarce) Shortage(time.Time) error {
	if s.short.Load() {
		return errors.New("the process uses 60 MiB of memory, and its limit is 64 MiB")
	}
	return nil
}

// While the kubelet is short of memory of its own, the pod for which it keeps the
// most is evicted, the others stay, the node has the condition MemoryPressure, and
// new pods wait: best-effort ones are refused, as in upstream under that condition.
func TestShortageOfTheKubeletsOwnMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := &scarce{}
		b := newBench(t)
		b.configure = func(c *Config) { c.Memory = memory }
		b.start()
		defer func() { b.stop() }()
		long := func(p *v1.Pod, bytes int) {
			p.Annotations = map[string]string{"text": strings.Repeat("x", bytes)}
		}
		burstable := func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: quantity("10m")}
		}
		b.create(pod("small"))
		b.create(pod("large", func(p *v1.Pod) { long(p, 100<<10) }))
		b.create(pod("larger", func(p *v1.Pod) { long(p, 200<<10) }))
		b.after(time.Minute)
		if got := b.nodeCondition(v1.NodeMemoryPressure); got != "False KubeletHasSufficientMemory" || len(b.evictedOf("small", "large", "larger")) > 0 {
			t.Fatalf("before: %s", got)
		}

		memory.short.Store(true)
		b.create(pod("late", burstable))
		b.create(pod("critical", burstable, func(p *v1.Pod) { p.Spec.Priority = new(int32(2000001000)) }))
		b.after(15 * time.Second)
		if got := b.nodeCondition(v1.NodeMemoryPressure); got != "True KubeletHasInsufficientMemory" {
			t.Errorf("the node's condition is %s", got)
		}
		if got := b.evictedOf("small", "large", "larger"); len(got) != 1 || got[0] != "larger" {
			t.Fatalf("evicted: %v", got)
		}
		if got, want := b.get("larger").Status.Message, "The kubelet was low on memory: the process uses 60 MiB of memory, and its limit is 64 MiB. It kept about "; !strings.HasPrefix(got, want) {
			t.Errorf("the message is %q, want %q", got, want)
		}
		b.create(pod("besteffort"))
		if got := b.get("besteffort").Status; got.Reason != "Evicted" || got.Message != "Pod was rejected: The node had condition: [MemoryPressure]. " {
			t.Errorf("a best-effort pod: %s %q", got.Reason, got.Message)
		}
		b.after(time.Minute)
		if late, critical := b.get("late").Status.Phase, b.get("critical").Status.Phase; late != v1.PodPending || critical != v1.PodRunning {
			t.Errorf("a new pod is %s, a critical one %s", late, critical)
		}
		const waits = "Failed to create pod sandbox: the kubelet has no memory for another pod: the process uses 60 MiB of memory, and its limit is 64 MiB"
		if got := b.events("FailedCreatePodSandBox"); len(got) == 0 || got[0] != waits {
			t.Errorf("events %q, want %q", got, waits)
		}
		b.after(2 * time.Minute)
		if got := b.evictedOf("small", "large"); len(got) != 1 || got[0] != "large" {
			t.Errorf("evicted later: %v", got)
		}
		b.after(10 * time.Minute)
		if got := b.get("small").Status.Phase; got != v1.PodRunning {
			t.Errorf("a pod that is not the reason is %s", got)
		}

		memory.short.Store(false)
		b.after(6 * time.Minute)
		if got := b.nodeCondition(v1.NodeMemoryPressure); got != "False KubeletHasSufficientMemory" {
			t.Errorf("after the shortage: %s", got)
		}
		if got := b.get("late").Status.Phase; got != v1.PodRunning {
			t.Errorf("the pod that has waited is %s", got)
		}
	})
}

// Any user can make a pod critical. One for which the kubelet keeps a large part of its
// memory is evicted nevertheless, before others that cost less.
func TestCriticalPodThatCostsTheKubeletsMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := &scarce{}
		b := newBench(t)
		b.configure = func(c *Config) { c.Memory = memory }
		b.start()
		defer func() { b.stop() }()
		critical := func(bytes int) func(p *v1.Pod) {
			return func(p *v1.Pod) {
				p.Spec.Priority = new(int32(2000001000))
				p.Annotations = map[string]string{"text": strings.Repeat("x", bytes)}
			}
		}
		b.create(pod("costly", critical(1<<20)))
		b.create(pod("cheap", critical(200<<10)))
		b.create(pod("plain", func(p *v1.Pod) { p.Annotations = map[string]string{"text": strings.Repeat("x", 100<<10)} }))
		b.after(time.Minute)
		memory.short.Store(true)
		b.after(15 * time.Second)
		if got := b.evictedOf("costly", "cheap", "plain"); len(got) != 1 || got[0] != "costly" {
			t.Errorf("evicted: %v", got)
		}
		b.after(10 * time.Minute)
		if got := b.get("cheap").Status.Phase; got != v1.PodRunning {
			t.Errorf("a critical pod that costs little is %s", got)
		}
	})
}
