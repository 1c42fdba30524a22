package kubelet

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory"
)

// After the machine's clock was set, back or forward, what runs keeps running
// and nothing waits for the old time to come.
func TestClockIsSet(t *testing.T) {
	for name, back := range map[string]time.Duration{"back": time.Hour, "forward": -time.Hour} {
		for _, restarted := range []bool{false, true} {
			t.Run(name, func(t *testing.T) { run(t, func(t *testing.T, b *bench) { b.testClock(back, restarted) }) })
		}
	}
}

func (b *bench) testClock(back time.Duration, restarted bool) {
	t := b.t
	b.runtime.Behave = func(c *runtimeapi.ContainerConfig) inmemory.Behaviour {
		if len(c.GetCommand()) > 0 && c.GetCommand()[0] == "crash" {
			return inmemory.Behaviour{RunFor: time.Second, ExitCode: 1}
		}
		return inmemory.Behaviour{}
	}
	probe := &v1.Probe{
		InitialDelaySeconds: 5, PeriodSeconds: 5, FailureThreshold: 3, SuccessThreshold: 1,
		ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"ready"}}},
	}
	b.manifest("static")
	b.create(pod("runs", func(p *v1.Pod) {
		p.Spec.Containers[0].Name, p.Spec.Containers[0].ReadinessProbe = "runs", probe
	}))
	b.create(pod("crashes", func(p *v1.Pod) {
		p.Spec.Containers[0].Name, p.Spec.Containers[0].Command = "crashes", []string{"crash"}
	}))
	b.after(25 * time.Second) // the crashing container waits for its third start
	lasting, crashed := b.live("runs"), b.get("crashes").Status.ContainerStatuses[0].RestartCount
	if err := b.runtime.SetClockBack(t.Context(), back); err != nil {
		t.Fatal(err)
	}
	if restarted {
		b.stop()
		b.start()
	}
	mirror := b.get("web-alpha").DeepCopy()
	deleted, grace := metav1.NewTime(time.Now().Add(back)), int64(0) // by a client, just before the clock was set
	mirror.DeletionTimestamp, mirror.DeletionGracePeriodSeconds = &deleted, &grace
	if _, err := b.api.CoreV1().Pods("default").Update(t.Context(), mirror, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	b.create(pod("new", func(p *v1.Pod) { p.Spec.Containers[0].Name, p.Spec.Containers[0].ReadinessProbe = "new", probe }))
	b.after(time.Minute)
	if id := b.live("runs"); id != lasting || conditionOf(b.get("runs"), v1.PodReady) != v1.ConditionTrue {
		t.Errorf("the running pod: container %s instead of %s, %+v", id, lasting, b.get("runs").Status)
	}
	if n := b.get("crashes").Status.ContainerStatuses[0].RestartCount; n <= crashed {
		t.Errorf("the crashing container was restarted %d times before, and %d times a minute later", crashed, n)
	}
	if conditionOf(b.get("new"), v1.PodReady) != v1.ConditionTrue {
		t.Errorf("the new pod: %+v", b.get("new").Status)
	}
	if m := b.get("web-alpha"); m == nil || m.DeletionTimestamp != nil {
		t.Errorf("the mirror pod was not created again: %+v", m)
	}
	b.delete("runs", 30)
	b.after(time.Second)
	if b.get("runs") != nil || b.live("runs") != "" {
		t.Error("the deleted pod is still there")
	}
}
