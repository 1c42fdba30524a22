package probe

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	_ "github.com/coracle-io/coracle/internal/bubble"
)

// start returns a Manager that runs commands by exec, until the test ends.
func start(t *testing.T, exec Exec) *Manager {
	t.Helper()
	m := New(&Runner{Exec: exec}, record.NewFakeRecorder(100), func(*v1.Pod, string) *v1.ObjectReference { return &v1.ObjectReference{} }, func(types.UID) {})
	ctx, cancel := context.WithCancel(t.Context())
	m.Start(ctx)
	t.Cleanup(func() {
		cancel()
		m.Wait()
	})
	return m
}

func readiness(delay, period int32) *v1.Container {
	return &v1.Container{Name: "main", ReadinessProbe: &v1.Probe{InitialDelaySeconds: delay, PeriodSeconds: period,
		ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"ready"}}}}}
}

func never(string) (started, ready bool) { return false, false }

// The initial delay of a probe is no longer than its length if the clock was
// set back after the container started.
func TestInitialDelayAfterTheClockIsSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		m := start(t, func(context.Context, string, []string, time.Duration) ([]byte, error) {
			runs.Add(1)
			return nil, nil
		})
		m.Sync(&v1.Pod{}, "192.0.2.1", []Instance{{readiness(30, 5), "id", time.Now().Add(time.Hour)}}, never)
		time.Sleep(29 * time.Second)
		synctest.Wait()
		if n := runs.Load(); n != 0 {
			t.Errorf("the probe ran %d times in its initial delay", n)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if runs.Load() == 0 {
			t.Error("the probe did not run after its initial delay")
		}
	})
}

// The period goes from the start of a probe to the start of the next one. A probe
// that takes longer is followed by the next one at once.
func TestThePeriodGoesFromStartToStart(t *testing.T) {
	for name, test := range map[string]struct {
		takes, want time.Duration
	}{"quick": {4 * time.Second, 10 * time.Second}, "slow": {14 * time.Second, 14 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				starts := make(chan time.Time, 10)
				m := start(t, func(context.Context, string, []string, time.Duration) ([]byte, error) {
					starts <- time.Now()
					time.Sleep(test.takes)
					return nil, nil
				})
				c := readiness(0, 10)
				c.ReadinessProbe.TimeoutSeconds = 60
				m.Sync(&v1.Pod{}, "192.0.2.1", []Instance{{c, "id", time.Now()}}, never)
				last := <-starts
				for range 3 {
					now := <-starts
					if got := now.Sub(last); got != test.want {
						t.Errorf("%s from a probe to the next, want %s", got, test.want)
					}
					last = now
				}
			})
		})
	}
}

// A probe that cannot be carried out is tried three times and has one event.
func TestAProbeThatCannotBeCarriedOutHasOneEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		events := record.NewFakeRecorder(100)
		m := New(&Runner{Exec: func(context.Context, string, []string, time.Duration) ([]byte, error) {
			runs.Add(1)
			return nil, errors.New("the runtime does not answer")
		}}, events, func(*v1.Pod, string) *v1.ObjectReference { return &v1.ObjectReference{} }, func(types.UID) {})
		ctx, cancel := context.WithCancel(t.Context())
		m.Start(ctx)
		m.Sync(&v1.Pod{}, "192.0.2.1", []Instance{{readiness(0, 10), "id", time.Now()}}, never)
		time.Sleep(time.Second)
		cancel()
		m.Wait()
		unknown := m.Counts()[Count{Container: "main", Probe: "Readiness", Result: "unknown"}]
		if n := len(events.Events); runs.Load() != 3 || n != 1 || unknown != 1 {
			t.Errorf("the probe ran %d times, with %d events, and counted %d times", runs.Load(), n, unknown)
		}
	})
}

// A restarted kubelet spreads the first probes of running containers over a
// period. It probes new containers at once.
func TestProbesOfAdoptedContainersAreSpread(t *testing.T) {
	for name, test := range map[string]struct {
		age      time.Duration
		min, max int32 // containers probed within a second
	}{
		"adopted": {time.Hour, 0, 60},
		"new":     {0, 100, 100},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var runs atomic.Int32
				m := start(t, func(context.Context, string, []string, time.Duration) ([]byte, error) {
					runs.Add(1)
					return nil, nil
				})
				var running []Instance
				for i := range 100 {
					running = append(running, Instance{readiness(0, 10), strconv.Itoa(i), time.Now().Add(-test.age)})
				}
				m.Sync(&v1.Pod{}, "192.0.2.1", running, never)
				time.Sleep(time.Second)
				synctest.Wait()
				if n := runs.Load(); n < test.min || n > test.max {
					t.Errorf("%d of 100 containers are probed within a second", n)
				}
				time.Sleep(9 * time.Second)
				synctest.Wait()
				if n := runs.Load(); n < 100 {
					t.Errorf("%d of 100 containers are probed within their period", n)
				}
			})
		})
	}
}

// TestProbesFollowTheAddress checks that a probe that runs goes to the address that the pod
// has now: that of a pod in the node's network may change.
func TestProbesFollowTheAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, func(context.Context, string, []string, time.Duration) ([]byte, error) { return nil, nil })
		running := []Instance{{readiness(0, 10), "id", time.Now()}}
		for _, ip := range []string{"192.0.2.1", "192.0.2.2"} {
			m.Sync(&v1.Pod{}, ip, running, never)
			synctest.Wait()
			if got := m.workers[""][key{"id", Readiness}].targetNow(); got.IP != ip || got.ContainerID != "id" {
				t.Errorf("the probe goes to %s of the container %s, want %s", got.IP, got.ContainerID, ip)
			}
		}
	})
}
