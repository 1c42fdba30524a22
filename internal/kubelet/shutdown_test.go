package kubelet

import (
	"context"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/kubelet/shutdown"
)

// logind is a logind that announces shutdowns and counts the locks.
type logind struct{ shutdowns chan bool }

func (l *logind) InhibitDelay(context.Context) (time.Duration, error)  { return time.Minute, nil }
func (l *logind) SetInhibitDelay(context.Context, time.Duration) error { return nil }
func (l *logind) Inhibit(context.Context) (io.Closer, error)           { return io.NopCloser(nil), nil }
func (l *logind) Shutdowns() <-chan bool                               { return l.shutdowns }
func (l *logind) Close() error                                         { return nil }
func (l *logind) connect(context.Context) (shutdown.Logind, error)     { return l, nil }

// Before the machine shuts down, pods end as Failed, the node is not Ready and
// rejects pods. After a cancelled shutdown it is Ready again.
func TestNodeShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l := newBench(t), &logind{shutdowns: make(chan bool)}
		b.configure = func(c *Config) {
			c.Logind = l.connect
			c.Configuration.ShutdownGracePeriod = metav1.Duration{Duration: 30 * time.Second}
			c.Configuration.ShutdownGracePeriodCriticalPods = metav1.Duration{Duration: 10 * time.Second}
		}
		events := b.record()
		b.start()
		defer func() { b.stop() }()
		b.create(pod("web"))
		b.after(time.Minute)
		l.shutdowns <- true
		b.after(30 * time.Second)
		got := b.get("web")
		if got.Status.Phase != v1.PodFailed || got.Status.Reason != "Terminated" || got.Status.Message != "Pod was terminated in response to imminent node shutdown." {
			t.Errorf("the pod is %s for %q: %q", got.Status.Phase, got.Status.Reason, got.Status.Message)
		}
		if conditionOf(got, v1.DisruptionTarget) != v1.ConditionTrue {
			t.Errorf("the pod's conditions are %v", got.Status.Conditions)
		}
		b.create(pod("late"))
		b.after(time.Second)
		late := b.get("late")
		if late.Status.Phase != v1.PodFailed || late.Status.Reason != "NodeShutdown" || late.Status.Message != "Pod was rejected: Pod was rejected as the node is shutting down." {
			t.Errorf("a new pod is %s for %q: %q", late.Status.Phase, late.Status.Reason, late.Status.Message)
		}
		if ready := b.nodeCondition(v1.NodeReady); ready != "False KubeletNotReady" {
			t.Errorf("the node's condition Ready is %s", ready)
		}
		l.shutdowns <- false
		b.after(time.Minute)
		if ready := b.nodeCondition(v1.NodeReady); ready != "True KubeletReady" {
			t.Errorf("after a cancelled shutdown, the node's condition Ready is %s", ready)
		}
		if got, want := events("Shutdown"), []string{"Shutdown manager detected shutdown event", "Shutdown manager detected shutdown cancellation"}; !slices.Equal(got, want) {
			t.Errorf("events of the node %q, want %q", got, want)
		}
	})
}
