package kubelet

import (
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory"
)

// The initial delay of a probe counts from the container's start, also when
// the startup probe succeeds earlier.
func TestInitialDelayAfterStartup(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		var early atomic.Int32
		b.runtime.Behave = func(*runtimeapi.ContainerConfig) inmemory.Behaviour {
			return inmemory.Behaviour{Exec: func(command []string) (string, int32) {
				if command[0] == "live" {
					early.Add(1)
				}
				return "", 0
			}}
		}
		probe := func(command string, delay int32) *v1.Probe {
			return &v1.Probe{PeriodSeconds: 2, InitialDelaySeconds: delay, FailureThreshold: 3, SuccessThreshold: 1, ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{command}}}}
		}
		b.create(pod("web", func(p *v1.Pod) {
			p.Spec.Containers[0].StartupProbe, p.Spec.Containers[0].LivenessProbe = probe("started", 1), probe("live", 60)
		}))
		b.after(50 * time.Second)
		if n := early.Load(); n != 0 {
			t.Errorf("the liveness probe ran %d times before its initial delay was over", n)
		}
		b.after(30 * time.Second)
		if early.Load() == 0 {
			t.Error("the liveness probe did not run after its initial delay")
		}
	})
}

// The preStop hook of a sidecar runs at once, and the sidecar goes after the
// containers that it serves.
func TestSidecarsDrainWhileOthersEnd(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		var hooked atomic.Bool
		b.runtime.Behave = func(c *runtimeapi.ContainerConfig) inmemory.Behaviour {
			return inmemory.Behaviour{IgnoreStop: c.GetMetadata().GetName() == "main", Exec: func([]string) (string, int32) {
				hooked.Store(true)
				return "", 0
			}}
		}
		always := v1.ContainerRestartPolicyAlways
		b.create(pod("web", func(p *v1.Pod) {
			side := p.Spec.Containers[0]
			side.Name, side.RestartPolicy = "side", &always
			side.Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"drain"}}}}
			p.Spec.InitContainers = []v1.Container{side}
		}))
		b.after(time.Minute)
		b.delete("web", 30)
		b.after(10 * time.Second)
		if !hooked.Load() || b.live("main") == "" || b.live("side") == "" {
			t.Errorf("after 10 of 30 s: hook run %v, main %q, side %q", hooked.Load(), b.live("main"), b.live("side"))
		}
		b.after(time.Minute)
		if b.live("main") != "" || b.live("side") != "" {
			t.Errorf("after the grace period: main %q, side %q", b.live("main"), b.live("side"))
		}
	})
}

// A terminating pod reports when a container is no longer ready, so that the pod
// gets no more traffic.
func TestReadinessWhileThePodEnds(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		var busy atomic.Bool
		b.runtime.Behave = func(*runtimeapi.ContainerConfig) inmemory.Behaviour {
			return inmemory.Behaviour{IgnoreStop: true, Exec: func([]string) (string, int32) {
				if busy.Load() {
					return "draining", 1
				}
				return "", 0
			}}
		}
		b.create(pod("web", func(p *v1.Pod) {
			p.Spec.Containers[0].ReadinessProbe = &v1.Probe{PeriodSeconds: 5, FailureThreshold: 1, SuccessThreshold: 1, ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"ready"}}}}
		}))
		b.after(time.Minute)
		if !b.get("web").Status.ContainerStatuses[0].Ready {
			t.Fatalf("before: %+v", b.get("web").Status)
		}
		b.delete("web", 120)
		b.after(10 * time.Second)
		busy.Store(true)
		b.after(20 * time.Second)
		if p := b.get("web"); p.Status.ContainerStatuses[0].Ready || b.live("main") == "" {
			t.Errorf("while it ends: main %q, %+v", b.live("main"), p.Status.ContainerStatuses[0])
		}
	})
}

// A container's readiness is reported while the kubelet works on another one of
// the pod: while it waits for that one to end, or for its hook.
func TestReadinessWhileAnotherContainerRestarts(t *testing.T) {
	const slow = "slow"
	probe := func(command string) *v1.Probe {
		return &v1.Probe{PeriodSeconds: 5, FailureThreshold: 1, SuccessThreshold: 1, ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{command}}}}
	}
	for name, other := range map[string]v1.Container{
		"kill": {LivenessProbe: probe("live")},
		"hook": {Lifecycle: &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"hook"}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, b *bench) {
				var sick, busy atomic.Bool
				b.runtime.Behave = func(c *runtimeapi.ContainerConfig) inmemory.Behaviour {
					return inmemory.Behaviour{IgnoreStop: c.GetMetadata().GetName() == slow, Exec: func(command []string) (string, int32) {
						switch {
						case command[0] == "hook" && sick.Load():
							<-time.After(10 * time.Minute)
						case command[0] == "live" && sick.Load(), command[0] == "ready" && busy.Load():
							return "sick", 1
						}
						return "", 0
					}}
				}
				b.create(pod("web", func(p *v1.Pod) {
					long := int64(600)
					p.Spec.TerminationGracePeriodSeconds = &long
					p.Spec.Containers[0].ReadinessProbe = probe("ready")
					other.Name, other.Image = slow, "example.com/app:1"
					p.Spec.Containers = append(p.Spec.Containers, other)
				}))
				b.after(time.Minute)
				sick.Store(true)
				if name == "hook" {
					b.runtime.Exit(b.live(slow), 1)
				}
				b.after(time.Minute)
				if p := b.get("web"); !p.Status.ContainerStatuses[0].Ready {
					t.Fatalf("before: %+v", p.Status.ContainerStatuses)
				}
				busy.Store(true)
				b.after(20 * time.Second)
				if p := b.get("web"); p.Status.ContainerStatuses[0].Ready || conditionOf(p, v1.PodReady) != v1.ConditionFalse {
					t.Errorf("meanwhile: %+v", p.Status.ContainerStatuses)
				}
			})
		})
	}
}

// A pod whose containers end when they are asked to is gone at once.
func TestSidecarsEndWithTheOthers(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		always := v1.ContainerRestartPolicyAlways
		b.create(pod("web", func(p *v1.Pod) {
			for _, name := range []string{"first", "second"} {
				side := p.Spec.Containers[0]
				side.Name, side.RestartPolicy = name, &always
				p.Spec.InitContainers = append(p.Spec.InitContainers, side)
			}
		}))
		b.after(time.Minute)
		b.delete("web", 300)
		b.after(10 * time.Second)
		if p := b.get("web"); p != nil {
			t.Errorf("after 10 of 300 s: %+v", p.Status.ContainerStatuses)
		}
	})
}

// A pod whose main container has ended runs until its sidecar has ended, too. What
// makes pods anew must not believe that its ports and volumes are free.
func TestPhaseWhileASidecarEnds(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.runtime.Behave = func(c *runtimeapi.ContainerConfig) inmemory.Behaviour {
			if c.GetMetadata().GetName() == "main" {
				return inmemory.Behaviour{RunFor: time.Minute}
			}
			return inmemory.Behaviour{IgnoreStop: true}
		}
		always := v1.ContainerRestartPolicyAlways
		b.create(pod("job", func(p *v1.Pod) {
			side := p.Spec.Containers[0]
			side.Name, side.RestartPolicy = "side", &always
			p.Spec.InitContainers = []v1.Container{side}
			p.Spec.RestartPolicy = v1.RestartPolicyNever
			p.Spec.TerminationGracePeriodSeconds = new(int64(30))
		}))
		ending := false
		for range 60 {
			b.after(2 * time.Second)
			ended := b.live("main") == "" && b.live("side") != "" && b.get("job").Status.ContainerStatuses[0].State.Terminated != nil
			ending = ending || ended
			if p := b.get("job"); ended && p.Status.Phase != v1.PodRunning {
				t.Fatalf("phase %s while the sidecar ends: %+v", p.Status.Phase, p.Status)
			}
		}
		if p := b.get("job"); !ending || p.Status.Phase != v1.PodSucceeded {
			t.Errorf("in the end, seen while it ended: %t, %+v", ending, p.Status)
		}
	})
}

// A pod that is out of time has not succeeded, also while its sidecar takes its
// time to end.
func TestPhaseWhileAFailedPodEnds(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.runtime.Behave = func(c *runtimeapi.ContainerConfig) inmemory.Behaviour {
			return inmemory.Behaviour{IgnoreStop: c.GetMetadata().GetName() == "side"}
		}
		always, deadline := v1.ContainerRestartPolicyAlways, int64(60)
		b.create(pod("web", func(p *v1.Pod) {
			side := p.Spec.Containers[0]
			side.Name, side.RestartPolicy = "side", &always
			p.Spec.InitContainers = []v1.Container{side}
			p.Spec.RestartPolicy = v1.RestartPolicyNever
			p.Spec.ActiveDeadlineSeconds = &deadline
		}))
		for range 60 {
			b.after(2 * time.Second)
			if p := b.get("web"); p.Status.Phase == v1.PodSucceeded {
				t.Fatalf("main %q, side %q: %+v", b.live("main"), b.live("side"), p.Status)
			}
		}
		if p := b.get("web"); p.Status.Phase != v1.PodFailed || p.Status.Reason != "DeadlineExceeded" {
			t.Errorf("in the end: %+v", p.Status)
		}
	})
}
