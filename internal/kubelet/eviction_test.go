package kubelet

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/kubelet/node"
)

// changing is a machine whose free resources a test sets.
type changing struct {
	node.Machine
	mu   sync.Mutex // guards left
	left node.Free
}

func (c *changing) Free() (node.Free, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left, nil
}

func (c *changing) set(left node.Free) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = left
}

func (b *bench) nodeCondition(t v1.NodeConditionType) string {
	n, err := b.api.CoreV1().Nodes().Get(b.t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, c := range n.Status.Conditions {
		if c.Type == t {
			return string(c.Status) + " " + c.Reason
		}
	}
	return ""
}

func TestPressureEvictsAndPasses(t *testing.T) {
	const plenty, little = 1 << 30, 1 << 20
	synctest.Test(t, func(t *testing.T) {
		machine := &changing{left: node.Free{MemoryBytes: plenty, MemoryTotal: 8 << 30, PIDs: 1000, PIDsTotal: 2000}}
		b := newBench(t)
		b.configure = func(c *Config) { machine.Machine, c.Machine = c.Machine, machine }
		b.start()
		defer func() { b.stop() }()
		low, high := int32(0), int32(100)
		b.create(pod("low", func(p *v1.Pod) { p.Spec.Priority = &low }))
		b.create(pod("high", func(p *v1.Pod) { p.Spec.Priority = &high }))
		b.after(time.Minute)
		if got := b.nodeCondition(v1.NodeMemoryPressure); got != "False KubeletHasSufficientMemory" {
			t.Fatalf("before: %s", got)
		}

		machine.set(node.Free{MemoryBytes: little, MemoryTotal: 8 << 30, PIDs: 1000, PIDsTotal: 2000})
		b.after(15 * time.Second)
		if got := b.nodeCondition(v1.NodeMemoryPressure); got != "True KubeletHasInsufficientMemory" {
			t.Fatalf("under pressure: %s", got)
		}
		if low, high := b.get("low").Status, b.get("high").Status; low.Reason != "Evicted" || low.Phase != v1.PodFailed || high.Reason != "" ||
			!strings.HasPrefix(low.Message, "The node was low on resource: memory. Threshold quantity: 100Mi, available: 1Mi. ") {
			t.Fatalf("evicted: low %s %q, high %q", low.Phase, low.Message, high.Message)
		}
		b.create(pod("late"))
		if late := b.get("late").Status; late.Reason != "Evicted" || late.Message != "Pod was rejected: The node had condition: [MemoryPressure]. " {
			t.Fatalf("a pod that came under pressure: %s %q", late.Reason, late.Message)
		}

		machine.set(node.Free{MemoryBytes: plenty, MemoryTotal: 8 << 30, PIDs: 1000, PIDsTotal: 2000})
		b.after(4 * time.Minute)
		if got := b.nodeCondition(v1.NodeMemoryPressure); got != "True KubeletHasInsufficientMemory" {
			t.Fatalf("within the transition period: %s", got)
		}
		b.after(2 * time.Minute)
		if got := b.nodeCondition(v1.NodeMemoryPressure); got != "False KubeletHasSufficientMemory" {
			t.Fatalf("after it: %s", got)
		}
		if high := b.get("high").Status.Phase; high != v1.PodRunning {
			t.Fatalf("the pod that stayed is %s", high)
		}
	})
}

func TestUnusedImagesGoWhenTheDiskFillsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		machine := &changing{left: node.Free{DiskBytes: 50, DiskTotal: 100}}
		b := newBench(t)
		b.configure = func(c *Config) {
			machine.Machine, c.Machine = c.Machine, machine
			c.Configuration.EvictionHard = map[string]string{}
		}
		b.runtime.AddImage("example.com/app:1", 10)
		b.runtime.AddImage("example.com/old:1", 10)
		b.start()
		defer func() { b.stop() }()
		b.create(pod("web"))
		images := func() (names []string) {
			list, err := b.runtime.Images().ListImages(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range list {
				names = append(names, i.GetRepoTags()...)
			}
			return names
		}
		b.after(time.Hour)
		if got := images(); len(got) != 2 {
			t.Fatalf("with half of the disk free there are left: %v", got)
		}
		machine.set(node.Free{DiskBytes: 14, DiskTotal: 100})
		b.after(11 * time.Minute)
		if got := images(); len(got) != 1 || got[0] != "example.com/app:1" {
			t.Fatalf("with the disk full there are left: %v", got)
		}
	})
}
