package kubelet

import (
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory"
)

// restartsAll makes a container restart all others when it ends with 88.
func restartsAll(c *v1.Container) {
	c.RestartPolicyRules = []v1.ContainerRestartRule{{
		Action:    v1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{88}},
	}}
}

// A container that ends with a code that restarts all containers makes the pod
// start over in its sandbox, init containers first (KEP-5532).
func TestRestartAllContainers(t *testing.T) {
	for _, source := range []string{"watcher", "sidecar"} {
		t.Run(source, func(t *testing.T) {
			run(t, func(t *testing.T, b *bench) {
				b.runtime.Behave = func(c *runtimeapi.ContainerConfig) inmemory.Behaviour {
					switch c.GetMetadata().GetName() {
					case "setup":
						return inmemory.Behaviour{RunFor: 10 * time.Second}
					case "task":
						return inmemory.Behaviour{RunFor: time.Second, ExitCode: 1}
					}
					return inmemory.Behaviour{IgnoreStop: true}
				}
				never, always := v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyAlways
				b.create(pod("web", func(p *v1.Pod) {
					p.Spec.RestartPolicy = v1.RestartPolicyNever
					named := func(name string, policy *v1.ContainerRestartPolicy) v1.Container {
						c := p.Spec.Containers[0]
						c.Name, c.RestartPolicy = name, policy
						if name == source {
							restartsAll(&c)
						}
						return c
					}
					p.Spec.InitContainers = []v1.Container{named("sidecar", &always), named("setup", nil)}
					p.Spec.Containers = append(p.Spec.Containers, named("watcher", &never), named("task", nil))
				}))
				b.after(time.Minute)
				names := []string{"main", "watcher", "sidecar"}
				before := map[string]string{}
				for _, name := range names {
					if before[name] = b.live(name); before[name] == "" {
						t.Fatalf("%s does not run: %+v", name, b.get("web").Status)
					}
				}
				ip := b.get("web").Status.PodIP
				b.runtime.Exit(before[source], 88)
				b.after(time.Second)
				if got := conditionOf(b.get("web"), v1.AllContainersRestarting); got != v1.ConditionTrue {
					t.Errorf("AllContainersRestarting is %s at first", got)
				}
				b.after(6 * time.Second)
				if b.live("setup") == "" || b.live("main") != "" {
					t.Errorf("the init container does not run alone: setup %q, main %q", b.live("setup"), b.live("main"))
				}
				if phase := b.get("web").Status.Phase; phase != v1.PodRunning {
					t.Errorf("phase %s while the init container runs", phase)
				}
				b.after(time.Minute)
				for _, name := range names {
					if now := b.live(name); now == "" || now == before[name] {
						t.Errorf("%s was %s and is %q", name, before[name], now)
					}
				}
				status := b.get("web").Status
				if status.Phase != v1.PodRunning || status.PodIP != ip || conditionOf(b.get("web"), v1.AllContainersRestarting) != v1.ConditionFalse {
					t.Errorf("afterwards: %+v", status)
				}
				for _, st := range append(status.InitContainerStatuses, status.ContainerStatuses...) {
					if st.RestartCount != 1 {
						t.Errorf("%s was restarted %d times", st.Name, st.RestartCount)
					}
				}
				ids := b.containers()
				b.stop()
				b.start()
				b.after(time.Hour)
				if now := b.containers(); len(now) != len(ids) {
					t.Errorf("the kubelet that came back has %d containers, not %d", len(now), len(ids))
				}
			})
		})
	}
}

// A pod that restarts all of its containers again and again is subject to
// back-off.
func TestRestartAllContainersBacksOff(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.runtime.Behave = func(*runtimeapi.ContainerConfig) inmemory.Behaviour {
			return inmemory.Behaviour{RunFor: time.Second, ExitCode: 88}
		}
		b.create(pod("web", func(p *v1.Pod) { restartsAll(&p.Spec.Containers[0]) }))
		b.after(time.Hour)
		if n := b.get("web").Status.ContainerStatuses[0].RestartCount; n < 10 || n > 20 {
			t.Errorf("restarted %d times in an hour", n)
		}
	})
}

// The round ends for all containers, for those as well that the kubelet makes
// only after it has ended, and whatever the node's clock says.
func TestRestartAllContainersDuringTheStart(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		var again atomic.Bool
		b.runtime.Behave = func(c *runtimeapi.ContainerConfig) inmemory.Behaviour {
			switch name := c.GetMetadata().GetName(); {
			case name == "setup":
				return inmemory.Behaviour{RunFor: time.Second}
			case name == "watcher" && !again.Swap(true):
				return inmemory.Behaviour{RunFor: 100 * time.Millisecond, ExitCode: 88}
			}
			return inmemory.Behaviour{}
		}
		b.create(pod("web", func(p *v1.Pod) {
			main := p.Spec.Containers[0]
			setup, watcher := main, main
			setup.Name, watcher.Name = "setup", "watcher"
			restartsAll(&watcher)
			watcher.Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 2}}} // main is made after its end
			p.Spec.InitContainers = []v1.Container{setup}
			p.Spec.Containers = []v1.Container{watcher, main}
		}))
		b.after(2 * time.Minute)
		status := b.get("web").Status
		for _, st := range append(status.InitContainerStatuses, status.ContainerStatuses...) {
			if st.RestartCount != 1 {
				t.Errorf("%s was restarted %d times: %+v", st.Name, st.RestartCount, st.State)
			}
		}
		if b.live("main") == "" || b.live("watcher") == "" {
			t.Errorf("not all run: %+v", status.ContainerStatuses)
		}
	})
}
