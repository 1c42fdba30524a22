package kubelet

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory"
)

// A container that is killed for its probe again and again waits longer and
// longer to be started, like one that ends by itself.
func TestFailedProbesBackOff(t *testing.T) {
	sick := &v1.Probe{InitialDelaySeconds: 1, PeriodSeconds: 1, FailureThreshold: 1, SuccessThreshold: 1,
		ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"check"}}}}
	always := v1.ContainerRestartPolicyAlways
	for name, change := range map[string]func(p *v1.Pod){
		"liveness": func(p *v1.Pod) { p.Spec.Containers[0].LivenessProbe = sick },
		"startup":  func(p *v1.Pod) { p.Spec.Containers[0].StartupProbe = sick },
		"liveness of a sidecar": func(p *v1.Pod) {
			c := p.Spec.Containers[0]
			c.Name, c.LivenessProbe, c.RestartPolicy = "side", sick, &always
			p.Spec.InitContainers = []v1.Container{c}
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, b *bench) {
				b.runtime.Behave = func(*runtimeapi.ContainerConfig) inmemory.Behaviour {
					return inmemory.Behaviour{RunFor: 24 * time.Hour, Exec: func([]string) (string, int32) { return "sick", 1 }}
				}
				b.create(pod("web", change))
				container := func() v1.ContainerStatus {
					s := b.get("web").Status
					return append(s.InitContainerStatuses, s.ContainerStatuses...)[0]
				}
				b.after(time.Minute)
				if got := container(); got.RestartCount != 4 {
					t.Errorf("restarted %d times in a minute", got.RestartCount)
				} else if w := got.State.Waiting; w == nil || w.Reason != "CrashLoopBackOff" || !strings.HasPrefix(w.Message, "back-off 40s restarting failed container="+got.Name+" pod=web_default(uid-web)") {
					t.Errorf("after a minute: %+v", got.State)
				}
				if name != "liveness" {
					return
				}
				b.after(time.Hour)
				if got := container(); got.RestartCount < 12 || got.RestartCount > 30 {
					t.Errorf("restarted %d times in an hour", got.RestartCount)
				} else if w := got.State.Waiting; w == nil || !strings.HasPrefix(w.Message, "back-off 5m0s ") {
					t.Errorf("after an hour: %+v", got.State)
				}
				if n := len(b.containers()); n > 4 {
					t.Errorf("%d containers are kept", n)
				}
			})
		})
	}
}

// Containers that end well wait like others where they are to run forever,
// and one that ran for ten minutes starts over.
func TestBackOffBeginsAnew(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		lasts := time.Second
		b.runtime.Behave = func(*runtimeapi.ContainerConfig) inmemory.Behaviour { return inmemory.Behaviour{RunFor: lasts} }
		b.create(pod("web"))
		b.after(time.Hour)
		got := b.get("web").Status.ContainerStatuses[0]
		if w := got.State.Waiting; w == nil || !strings.HasPrefix(w.Message, "back-off 5m0s ") || got.LastTerminationState.Terminated.ExitCode != 0 {
			t.Fatalf("after an hour: %+v", got.State)
		}
		lasts = 11 * time.Minute
		b.after(17*time.Minute + 2*time.Second)
		before := b.get("web").Status.ContainerStatuses[0]
		lasts = time.Second
		b.after(11 * time.Minute)
		if after := b.get("web").Status.ContainerStatuses[0]; before.State.Running == nil || after.RestartCount < before.RestartCount+4 {
			t.Fatalf("after it ran for eleven minutes: %d restarts, before %d (%+v)", after.RestartCount, before.RestartCount, before.State)
		}
	})
}
