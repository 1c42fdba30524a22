package kubelet

import (
	"encoding/json"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientfake "k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cgroup"
	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/podquery"
)

// resize gives the pod's container that much CPU, as request and limit.
func (b *bench) resize(name, cpu string) {
	b.t.Helper()
	p := b.get(name).DeepCopy()
	p.Generation++
	p.Spec.Containers[0].Resources = cpus(cpu)
	if _, err := b.api.CoreV1().Pods("default").Update(b.t.Context(), p, metav1.UpdateOptions{}); err != nil {
		b.t.Fatal(err)
	}
	b.after(5 * time.Second)
}

func cpus(cpu string) v1.ResourceRequirements {
	list := v1.ResourceList{v1.ResourceCPU: quantity(cpu)}
	return v1.ResourceRequirements{Requests: list, Limits: list.DeepCopy()}
}

// quota returns the limit of the running container, in thousandths of a CPU.
func (b *bench) quota() int64 {
	status, err := b.runtime.ContainerStatus(b.t.Context(), b.live("main"), false)
	if err != nil {
		b.t.Fatal(err)
	}
	return status.GetStatus().GetResources().GetLinux().GetCpuQuota() / 100
}

// A resize that does not fit changes nothing: the container keeps its resources,
// also when it or the kubelet restarts, until the resize fits or is taken back.
func TestResizeThatWaits(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.create(pod("web", func(p *v1.Pod) { p.Generation, p.Spec.Containers[0].Resources = 1, cpus("1") }))
		b.after(time.Minute)
		shows := func(when, allocated, reason string, quota int64) {
			t.Helper()
			p := b.get("web")
			st := p.Status.ContainerStatuses[0]
			if got := st.AllocatedResources[v1.ResourceCPU]; got.String() != allocated {
				t.Errorf("%s: allocated are %s, want %s", when, got.String(), allocated)
			}
			i := slices.IndexFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodResizePending })
			if reason == "" && i >= 0 || reason != "" && (i < 0 || p.Status.Conditions[i].Reason != reason || p.Status.Conditions[i].ObservedGeneration != p.Generation) {
				t.Errorf("%s: conditions %+v, want reason %q", when, p.Status.Conditions, reason)
			}
			if got := b.quota(); got != quota {
				t.Errorf("%s: the container has %d thousandths of a CPU, want %d", when, got, quota)
			}
		}
		shows("before", "1", "", 1000)
		b.resize("web", "100")
		shows("too big", "1", v1.PodReasonInfeasible, 1000)
		b.runtime.Exit(b.live("main"), 1)
		b.after(time.Minute)
		shows("after a restart of the container", "1", v1.PodReasonInfeasible, 1000)
		b.stop()
		b.start()
		b.runtime.Exit(b.live("main"), 1)
		b.after(time.Minute)
		shows("after a restart of the kubelet", "1", v1.PodReasonInfeasible, 1000)
		b.resize("web", "2")
		b.after(time.Minute)
		shows("small enough", "2", "", 2000)
	})
}

// Events say when a resize waits, starts and is done, and with which resources.
func TestEventsOfAResize(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		events := b.record()
		b.create(pod("web", func(p *v1.Pod) { p.Generation, p.Spec.Containers[0].Resources = 1, cpus("1") }))
		b.after(time.Minute)
		b.resize("web", "100")
		b.after(time.Minute)
		b.resize("web", "2")
		b.after(time.Minute)
		resources := func(cpu string) string {
			return `: {"containers":[{"name":"main","resources":{"limits":{"cpu":"` + cpu + `"},"requests":{"cpu":"` + cpu + `"}}}],"generation":`
		}
		for reason, want := range map[string]string{
			"ResizeInfeasible": "Pod resize Infeasible" + resources("100") + "2,\"error\":",
			"ResizeStarted":    "Pod resize started" + resources("2") + "3}",
			"ResizeCompleted":  "Pod resize completed" + resources("2") + "3}",
		} {
			if got := events(reason); len(got) != 1 || !strings.HasPrefix(got[0], want) {
				t.Errorf("%s: %q, want %q", reason, got, want)
			}
		}
	})
}

// Resizes are counted by what they ask for and how long they take, and while they wait.
func TestMetricsOfResizes(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		want := func(when string, want map[string]float64) {
			t.Helper()
			got := b.metrics()
			for name, value := range want {
				if got["kubelet_"+name] != value {
					t.Errorf("%s: %s is %v, want %v", when, name, got["kubelet_"+name], value)
				}
			}
		}
		b.create(pod("web", func(p *v1.Pod) { p.Generation, p.Spec.Containers[0].Resources = 1, cpus("1") }))
		b.after(time.Minute)
		b.resize("web", "100")
		b.after(time.Minute)
		want("too big", map[string]float64{
			"container_requested_resizes_total,increase,requests,cpu": 1, "container_requested_resizes_total,increase,limits,cpu": 1,
			"pod_pending_resizes,infeasible": 1, "pod_pending_resizes,deferred": 0, "pod_in_progress_resizes": 0,
			"pod_infeasible_resizes_total,insufficient_node_allocatable": 1, "pod_resize_duration_milliseconds,true": 0,
		})
		b.resize("web", "2")
		b.after(time.Minute)
		want("small enough", map[string]float64{
			"container_requested_resizes_total,increase,requests,cpu": 1, "container_requested_resizes_total,decrease,requests,cpu": 1,
			"pod_pending_resizes,infeasible": 0, "pod_in_progress_resizes": 0,
			"pod_infeasible_resizes_total,insufficient_node_allocatable": 1, "pod_resize_duration_milliseconds,true": 1,
		})
	})
}

// A resize that has waited for room is counted when the node accepts it, by why it was
// tried again.
func TestMetricsOfResizesThatWaited(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		want := func(when string, updated, retried float64) {
			t.Helper()
			got := b.metrics()
			if u, r := got["kubelet_pod_deferred_accepted_resizes_total,pod_updated"], got["kubelet_pod_deferred_accepted_resizes_total,periodic_retry"]; u != updated || r != retried {
				t.Errorf("%s: %v resizes were accepted after an update and %v after a while, want %v and %v", when, u, r, updated, retried)
			}
		}
		b.create(pod("web", sized("1")))
		b.create(pod("other", sized("2")))
		b.after(time.Minute)
		b.resize("web", "3")
		b.after(2 * time.Minute)
		want("while it waits", 0, 0)
		b.delete("other", 30)
		b.after(2 * time.Minute)
		want("once there is room", 0, 1)
		b.create(pod("small", sized("500m")))
		b.after(time.Minute)
		b.resize("small", "2")
		b.resize("small", "1")
		b.after(time.Minute)
		want("once it asks for less", 1, 1)
		b.resize("small", "500m")
		b.after(time.Minute)
		want("after one that did not wait", 1, 1)
	})
}

// Room on the node goes to the resizes that wait in the order of their pods' priorities,
// and then to the one that has waited longest, whichever is tried first. That one is tried
// next, and not only when its pod is synced anyway.
func TestDeferredResizesTakeTurns(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		for name, priority := range map[string]int32{"long": 0, "short": 0, "high": 1000} {
			b.create(pod(name, sized("500m"), func(p *v1.Pod) { p.Spec.Priority = &priority }))
		}
		for _, name := range []string{"one", "two", "three"} {
			b.create(pod(name, sized("800m")))
		}
		b.after(time.Minute)
		for _, name := range []string{"long", "short", "high"} {
			b.resize(name, "1300m")
		}
		want := map[string]string{"long": "500m", "short": "500m", "high": "500m"}
		for _, turn := range []struct{ ends, resized string }{{"none", "none"}, {"one", "high"}, {"two", "long"}, {"three", "short"}} {
			if turn.ends != "none" {
				b.delete(turn.ends, 30)
				b.after(time.Second)
				want[turn.resized] = "1300m"
			}
			for _, name := range []string{"short", "long"} {
				b.kubelet.pods.Wake(types.UID("uid-" + name))
				b.after(time.Second)
			}
			b.after(5 * time.Second)
			for name, cpu := range want {
				if got := b.allocated(name); got != cpu {
					t.Errorf("after the end of %s, pod %s has %q allocated, want %s", turn.ends, name, got, cpu)
				}
			}
		}
	})
}

// A client that sees the observed generation of a resize without the condition
// PodResizeInProgress would take the old resources for the new ones.
func TestResizeIsInProgressUntilItIsDone(t *testing.T) {
	for _, policy := range []v1.ResourceResizeRestartPolicy{v1.NotRequired, v1.RestartContainer} {
		t.Run(string(policy), func(t *testing.T) {
			run(t, func(t *testing.T, b *bench) {
				b.create(pod("web", func(p *v1.Pod) {
					p.Generation, p.Spec.Containers[0].Resources = 1, cpus("1")
					p.Spec.Containers[0].ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceCPU, RestartPolicy: policy}}
				}))
				b.after(time.Minute)
				var mu sync.Mutex
				var seen []v1.PodStatus
				b.api.(*clientfake.Clientset).PrependReactor("patch", "pods", func(action k8stesting.Action) (bool, runtime.Object, error) {
					var p v1.Pod
					if err := json.Unmarshal(action.(k8stesting.PatchAction).GetPatch(), &p); err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					seen = append(seen, p.Status)
					return false, nil, nil
				})
				b.resize("web", "2")
				b.after(time.Minute)
				mu.Lock()
				defer mu.Unlock()
				if len(seen) == 0 {
					t.Fatal("no status was written")
				}
				inProgress := slices.ContainsFunc(seen[0].Conditions, func(c v1.PodCondition) bool {
					return c.Type == v1.PodResizeInProgress && c.Status == v1.ConditionTrue && c.ObservedGeneration == 2
				})
				// The writer passes over a status that a newer one follows at once.
				done := slices.ContainsFunc(seen[0].ContainerStatuses, func(c v1.ContainerStatus) bool {
					return c.Resources != nil && c.Resources.Limits.Cpu().Value() == 2
				})
				if !inProgress && !done {
					t.Errorf("the first status of %d is %+v", len(seen), seen)
				}
				p := b.get("web")
				if got := conditionOf(p, v1.PodResizeInProgress); got == v1.ConditionTrue || p.Status.ObservedGeneration != 2 || b.quota() != 2000 {
					t.Errorf("in the end: in progress %s, generation %d, %d thousandths of a CPU", got, p.Status.ObservedGeneration, b.quota())
				}
				if got := b.events("ResizeError"); len(got) > 0 {
					t.Errorf("it failed: %q", got)
				}
			})
		})
	}
}

// TestResizeChangesNothingThatWasObserved checks that a resize replaces the
// observed pod instead of changing it, because scrapes of metrics may be
// reading it.
func TestResizeChangesNothingThatWasObserved(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.create(pod("web", sized("1")))
		b.after(time.Minute)
		before := b.kubelet.pods.Containers()
		b.resize("web", "2")
		after := b.kubelet.pods.Containers()
		if len(before) != 1 || len(after) != 1 {
			t.Fatalf("%d containers run, and then %d", len(before), len(after))
		}
		if before[0].Resources.GetCpuQuota() != 100000 || after[0].Resources.GetCpuQuota() != 200000 {
			t.Errorf("the quota was %d and is %d", before[0].Resources.GetCpuQuota(), after[0].Resources.GetCpuQuota())
		}
	})
}

func sized(cpu string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Generation, p.Spec.Containers[0].Resources = 1, cpus(cpu) }
}

// allocated returns the CPU that the node has allocated to the pod's container.
func (b *bench) allocated(name string) string {
	b.t.Helper()
	statuses := b.get(name).Status.ContainerStatuses
	if len(statuses) == 0 {
		return ""
	}
	q := statuses[0].AllocatedResources[v1.ResourceCPU]
	return q.String()
}

// A resize that waits takes nothing from other resizes and from new pods, also
// after a restart of the kubelet.
func TestResizeThatWaitsHoldsNothing(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		for _, name := range []string{"a", "b", "c"} {
			b.create(pod(name, sized("1")))
		}
		b.after(time.Minute)
		b.resize("a", "3")
		b.after(time.Minute)
		b.resize("b", "1500m")
		b.after(5 * time.Minute)
		b.stop()
		b.create(pod("d", sized("250m")))
		b.start()
		b.create(pod("e", sized("250m")))
		b.after(time.Minute)
		for name, want := range map[string]string{"a": "1", "b": "1500m", "c": "1", "d": "250m", "e": "250m"} {
			if got := b.allocated(name); got != want {
				t.Errorf("pod %s has %q allocated, want %s: %+v", name, got, want, b.get(name).Status)
			}
		}
	})
}

// A kubelet that finds no readable allocation of a pod that runs does not take a
// resize that waits for granted.
func TestResizeThatWaitsWithoutItsAllocation(t *testing.T) {
	const file = "/var/lib/kubelet/pods/uid-web/allocation"
	for name, spoil := range map[string]func(b *bench) error{
		"torn":   func(b *bench) error { return b.files.WriteFile(file, []byte(`{"containers":`), 0o600) },
		"empty":  func(b *bench) error { return b.files.WriteFile(file, nil, 0o600) },
		"null":   func(b *bench) error { return b.files.WriteFile(file, []byte("null"), 0o600) },
		"absent": func(b *bench) error { return b.files.Remove(file) },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, b *bench) {
				b.create(pod("web", sized("1")))
				b.after(time.Minute)
				b.resize("web", "100")
				b.stop()
				if err := spoil(b); err != nil {
					t.Fatal(err)
				}
				b.start()
				b.after(2 * time.Minute)
				if got, quota := b.allocated("web"), b.quota(); got != "1" || quota != 1000 {
					t.Errorf("allocated are %s, the container has %d thousandths of a CPU", got, quota)
				}
				if got := conditionOf(b.get("web"), v1.PodResizePending); got != v1.ConditionTrue {
					t.Errorf("the resize waits: %s", got)
				}
				b.resize("web", "2")
				b.after(time.Minute)
				if got, quota := b.allocated("web"), b.quota(); got != "2" || quota != 2000 {
					t.Errorf("after a resize that fits allocated are %s, the container has %d thousandths of a CPU", got, quota)
				}
			})
		})
	}
}

// powerless loses files that were not synced.
type powerless struct {
	files.FS
	mu   sync.Mutex // guards lost
	lost map[string]bool
}

func (p *powerless) set(path string, lost bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost[path] = lost
}

func (p *powerless) Replace(path string, data []byte, perm fs.FileMode) error {
	p.set(path, false)
	return p.FS.Replace(path, data, perm)
}

func (p *powerless) ReplaceUnsynced(path string, data []byte, perm fs.FileMode) error {
	p.set(path, true)
	return p.FS.ReplaceUnsynced(path, data, perm)
}

// An allocation that was changed survives a loss of power.
func TestResizeSurvivesALossOfPower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		disk := &powerless{lost: map[string]bool{}}
		b.configure = func(c *Config) {
			disk.FS = c.Files
			c.Files = disk
		}
		b.start()
		b.create(pod("web", func(p *v1.Pod) { p.Generation, p.Spec.Containers[0].Resources = 1, cpus("1") }))
		b.after(time.Minute)
		b.resize("web", "2")
		b.after(time.Minute)
		b.stop()
		path := "/var/lib/kubelet/pods/" + string(b.get("web").UID) + "/allocation"
		if lost, written := disk.lost[path]; lost || !written {
			t.Errorf("of the files %v the allocation is lost", disk.lost)
		}
	})
}

// A limit below what a container uses would have the kernel kill it. The resize
// waits until the container uses less.
func TestResizeBelowTheUsage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var used atomic.Uint64
		used.Store(200 << 20)
		b := newBench(t)
		b.runtime.Behave = func(*runtimeapi.ContainerConfig) inmemory.Behaviour {
			return inmemory.Behaviour{Usage: func() (uint64, uint64) { return 0, used.Load() }}
		}
		b.start()
		defer func() { b.stop() }()
		memory := func(limit string) v1.ResourceRequirements {
			list := v1.ResourceList{v1.ResourceCPU: quantity("1"), v1.ResourceMemory: quantity(limit)}
			return v1.ResourceRequirements{Requests: list, Limits: list.DeepCopy()}
		}
		limit := func() int64 {
			status, err := b.runtime.ContainerStatus(t.Context(), b.live("main"), false)
			if err != nil {
				t.Fatal(err)
			}
			return status.GetStatus().GetResources().GetLinux().GetMemoryLimitInBytes()
		}
		b.create(pod("web", func(p *v1.Pod) { p.Generation, p.Spec.Containers[0].Resources = 1, memory("300Mi") }))
		b.after(time.Minute)
		p := b.get("web").DeepCopy()
		p.Generation++
		p.Spec.Containers[0].Resources = memory("100Mi")
		if _, err := b.api.CoreV1().Pods("default").Update(t.Context(), p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		b.after(2 * time.Minute)
		i := slices.IndexFunc(b.get("web").Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodResizeInProgress })
		if i < 0 {
			t.Fatalf("conditions %+v", b.get("web").Status.Conditions)
		}
		c := b.get("web").Status.Conditions[i]
		want := `attempting to set container "main" memory limit (104857600) below current usage (209715200)`
		if c.Reason != v1.PodReasonError || !strings.Contains(c.Message, want) || limit() != 300<<20 {
			t.Errorf("condition %+v, limit %d", c, limit())
		}
		group := b.groups.Get(cgroup.Pod("", v1.PodQOSGuaranteed, p.UID))
		if group.GetMemoryLimitInBytes() != 300<<20 {
			t.Errorf("the pod's control group has the limit %d", group.GetMemoryLimitInBytes())
		}
		used.Store(50 << 20)
		b.after(2 * time.Minute)
		if got := conditionOf(b.get("web"), v1.PodResizeInProgress); got == v1.ConditionTrue || limit() != 100<<20 {
			t.Errorf("in the end: in progress %s, limit %d", got, limit())
		}
	})
}

// A resize that changes only pod-level resources changes the pod's control
// group, also if the resources of the containers stay.
func TestResizeOfThePodAlone(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.create(pod("web", func(p *v1.Pod) {
			p.Generation, p.Spec.Containers[0].Resources = 1, cpus("1")
			whole := cpus("2")
			p.Spec.Resources = &whole
		}))
		b.after(time.Minute)
		p := b.get("web").DeepCopy()
		group := cgroup.Pod("", podquery.QOSClass(p), p.UID)
		if got := b.groups.Get(group).GetCpuQuota(); got != 200_000 {
			t.Fatalf("the quota of the pod is %d before the resize", got)
		}
		p.Generation++
		whole := cpus("3")
		p.Spec.Resources = &whole
		if _, err := b.api.CoreV1().Pods("default").Update(b.t.Context(), p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		b.after(time.Minute)
		if got := b.groups.Get(group).GetCpuQuota(); got != 300_000 {
			t.Errorf("the quota of the pod is %d after the resize, want 300000", got)
		}
		if got := b.quota(); got != 1000 {
			t.Errorf("the container has %d thousandths of a CPU, want 1000", got)
		}
	})
}
