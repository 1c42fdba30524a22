package kubelet

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cgroup"
	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory"
)

// groupQuota returns the limit of the control group of the burstable pod "web", in
// thousandths of a CPU.
func (b *bench) groupQuota() int64 {
	return b.groups.Get(cgroup.Pod("", v1.PodQOSBurstable, "uid-web")).GetCpuQuota() / 100
}

// The control group of a pod has the new resources of a container that restarts for
// them before it starts: version 1 of control groups refuses a quota above that of the
// pod, and version 2 does not let the container use it.
func TestGroupOfAContainerThatRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var mu sync.Mutex
		var around []int64 // the quota of the group when each container is made
		b.runtime.Behave = func(*runtimeapi.ContainerConfig) inmemory.Behaviour {
			mu.Lock()
			defer mu.Unlock()
			around = append(around, b.groupQuota())
			return inmemory.Behaviour{}
		}
		b.start()
		defer func() { b.stop() }()
		b.create(pod("web", sized("1"), func(p *v1.Pod) {
			p.Spec.Containers[0].ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceCPU, RestartPolicy: v1.RestartContainer}}
		}))
		b.after(time.Minute)
		for _, cpu := range []string{"2", "500m"} {
			b.resize("web", cpu)
			b.after(time.Minute)
		}
		mu.Lock()
		defer mu.Unlock()
		if want := []int64{1000, 2000, 500}; !slices.Equal(around, want) || b.groupQuota() != 500 {
			t.Errorf("the pod has %d thousandths of a CPU when its containers are made and %d in the end, want %d and 500", around, b.groupQuota(), want)
		}
		if got := conditionOf(b.get("web"), v1.PodResizeInProgress); got == v1.ConditionTrue {
			t.Error("the resize is still in progress")
		}
	})
}

// A container that backs off when it is resized starts within the new resources of its
// pod.
func TestGroupOfAContainerThatDoesNotRun(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.create(pod("web", sized("1")))
		b.after(time.Minute)
		for range 3 { // the first restart does not wait
			if id := b.live("main"); id != "" {
				b.runtime.Exit(id, 1)
			}
			b.after(time.Second)
		}
		if b.live("main") != "" {
			t.Fatal("the container does not back off")
		}
		b.resize("web", "2")
		b.after(time.Minute)
		if b.quota() != 2000 || b.groupQuota() != 2000 {
			t.Errorf("the container has %d thousandths of a CPU and its pod %d, want 2000", b.quota(), b.groupQuota())
		}
	})
}

// memoryOf returns resources of which only the request of memory varies.
func memoryOf(request string) v1.ResourceRequirements {
	return v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceCPU: quantity("1"), v1.ResourceMemory: quantity(request)},
		Limits:   v1.ResourceList{v1.ResourceCPU: quantity("1"), v1.ResourceMemory: quantity("200Mi")},
	}
}

// createForMemory creates the pod "web", whose container has that policy for memory.
func (b *bench) createForMemory(policy v1.ResourceResizeRestartPolicy) {
	b.t.Helper()
	b.create(pod("web", func(p *v1.Pod) {
		p.Generation, p.Spec.Containers[0].Resources = 1, memoryOf("100Mi")
		p.Spec.Containers[0].ResizePolicy = []v1.ContainerResizePolicy{
			{ResourceName: v1.ResourceCPU, RestartPolicy: v1.NotRequired},
			{ResourceName: v1.ResourceMemory, RestartPolicy: policy},
		}
	}))
	b.after(time.Minute)
}

// resizeMemory changes the request of memory of the pod "web".
func (b *bench) resizeMemory(request string) {
	b.t.Helper()
	p := b.get("web").DeepCopy()
	p.Generation++
	p.Spec.Containers[0].Resources = memoryOf(request)
	if _, err := b.api.CoreV1().Pods("default").Update(b.t.Context(), p, metav1.UpdateOptions{}); err != nil {
		b.t.Fatal(err)
	}
}

// A container restarts for a resource whose policy asks for it, also if the runtime has
// no control for what changes. The resize is done once the container has restarted.
func TestRequestsThatRestart(t *testing.T) {
	for policy, want := range map[v1.ResourceResizeRestartPolicy]int{v1.NotRequired: 0, v1.RestartContainer: 1} {
		t.Run(string(policy), func(t *testing.T) {
			run(t, func(t *testing.T, b *bench) {
				b.createForMemory(policy)
				events := b.record()
				for i, request := range []string{"120Mi", "80Mi"} {
					b.resizeMemory(request)
					b.after(2 * time.Minute)
					p := b.get("web")
					st, done := p.Status.ContainerStatuses[0], events("ResizeCompleted")
					if got := st.AllocatedResources[v1.ResourceMemory]; int(st.RestartCount) != want*(i+1) || st.State.Running == nil || got.String() != request || len(done) != i+1 {
						t.Errorf("after the resize to %s: %s allocated, %d restarts, running %v, completed %q", request, got.String(), st.RestartCount, st.State.Running != nil, done)
					}
					if got := conditionOf(p, v1.PodResizeInProgress); got == v1.ConditionTrue {
						t.Errorf("the resize to %s is still in progress", request)
					}
				}
			})
		})
	}
}

// A kubelet that ends while a container stops for a resize leaves its restart to the
// next one, once.
func TestRequestsThatRestartUnderTheNextKubelet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.runtime.Behave = func(*runtimeapi.ContainerConfig) inmemory.Behaviour {
			return inmemory.Behaviour{IgnoreStop: true}
		}
		b.start()
		defer func() { b.stop() }()
		b.createForMemory(v1.RestartContainer)
		before := b.live("main")
		b.resizeMemory("120Mi")
		b.after(5 * time.Second) // it stops for 30 s
		b.stop()
		if now := b.live("main"); now != before {
			t.Fatalf("the container %q runs while %q is to stop", now, before)
		}
		b.start()
		for range 2 {
			b.after(2 * time.Minute)
			if st := b.get("web").Status.ContainerStatuses[0]; st.RestartCount != 1 || st.State.Running == nil {
				t.Errorf("%d restarts, running %v, want one", st.RestartCount, st.State.Running != nil)
			}
			if got := conditionOf(b.get("web"), v1.PodResizeInProgress); got == v1.ConditionTrue {
				t.Error("the resize is still in progress")
			}
			b.stop()
			b.start()
		}
	})
}

// A control group that refuses a resize after all is no completed resize, and another
// kubelet goes on with it.
func TestResizeOfAContainerGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var busy busyGroups
		b.configure = func(c *Config) { busy.Groups, c.Groups = c.Groups, &busy }
		b.start()
		defer func() { b.stop() }()
		b.create(pod("web", sized("1")))
		b.after(time.Minute)
		events := b.record()
		busy.fails.Store(true)
		b.resize("web", "2")
		b.after(2 * time.Minute)
		if got := conditionOf(b.get("web"), v1.PodResizeInProgress); got != v1.ConditionTrue || b.quota() != 2000 {
			t.Errorf("while the group refuses it: in progress %s, the container has %d thousandths of a CPU", got, b.quota())
		}
		b.stop()
		if done := events("ResizeCompleted"); len(done) > 0 {
			t.Errorf("a resize that failed is completed: %q", done)
		}
		busy.fails.Store(false)
		b.start()
		b.after(2 * time.Minute)
		if got := conditionOf(b.get("web"), v1.PodResizeInProgress); got != v1.ConditionUnknown || b.groupQuota() != 2000 {
			t.Errorf("in the end: in progress %s, the pod has %d thousandths of a CPU", got, b.groupQuota())
		}
		if done := events("ResizeCompleted"); len(done) != 1 {
			t.Errorf("completed: %q", done)
		}
	})
}

// While one resize is not done, another one may wait. The conditions and events of each
// have the generation that asked for it.
func TestGenerationsOfTwoResizes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var busy busyGroups
		b.configure = func(c *Config) { busy.Groups, c.Groups = c.Groups, &busy }
		b.start()
		defer func() { b.stop() }()
		b.create(pod("web", sized("1")))
		b.after(time.Minute)
		events := b.record()
		busy.fails.Store(true)
		b.resize("web", "2")
		b.after(time.Minute)
		b.resize("web", "100")
		b.after(2 * time.Minute)
		generations := map[v1.PodConditionType]int64{}
		for _, c := range b.get("web").Status.Conditions {
			generations[c.Type] = c.ObservedGeneration
		}
		if generations[v1.PodResizeInProgress] != 2 || generations[v1.PodResizePending] != 3 || generations[v1.PodReady] != 3 {
			t.Errorf("generations %v, want 2 of the resize in progress and 3 of the others", generations)
		}
		busy.fails.Store(false)
		b.after(2 * time.Minute)
		if done := events("ResizeCompleted"); len(done) != 1 || !strings.Contains(done[0], `"generation":2`) {
			t.Errorf("completed: %q", done)
		}
	})
}

// A limit of the pod as a whole below what its containers use together waits, also if
// each of them alone uses less, and their limits would change with it.
func TestResizeOfThePodBelowTheUsage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.runtime.Behave = func(*runtimeapi.ContainerConfig) inmemory.Behaviour {
			return inmemory.Behaviour{Usage: func() (uint64, uint64) { return 0, 100 << 20 }}
		}
		b.start()
		defer func() { b.stop() }()
		memory := func(limit string) *v1.ResourceRequirements {
			list := v1.ResourceList{v1.ResourceMemory: quantity(limit)}
			return &v1.ResourceRequirements{Requests: list, Limits: list.DeepCopy()}
		}
		b.create(pod("web", func(p *v1.Pod) {
			p.Generation, p.Spec.Resources = 1, memory("400Mi")
			p.Spec.Containers = append(p.Spec.Containers, *p.Spec.Containers[0].DeepCopy())
			p.Spec.Containers[1].Name = "other"
		}))
		b.after(time.Minute)
		p := b.get("web").DeepCopy()
		p.Generation, p.Spec.Resources = 2, memory("150Mi")
		if _, err := b.api.CoreV1().Pods("default").Update(t.Context(), p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		b.after(2 * time.Minute)
		conditions := b.get("web").Status.Conditions
		i := slices.IndexFunc(conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodResizeInProgress })
		const want = "attempting to set pod memory limit (157286400) below current usage (209715200)"
		if i < 0 || conditions[i].Reason != v1.PodReasonError || !strings.Contains(conditions[i].Message, want) {
			t.Errorf("conditions %+v, want %q", conditions, want)
		}
		for _, name := range []string{"main", "other"} {
			status, err := b.runtime.ContainerStatus(t.Context(), b.live(name), false)
			if err != nil {
				t.Fatal(err)
			}
			if got := status.GetStatus().GetResources().GetLinux().GetMemoryLimitInBytes(); got != 400<<20 {
				t.Errorf("%s has the limit %d", name, got)
			}
		}
	})
}
