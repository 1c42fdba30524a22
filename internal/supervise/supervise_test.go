package supervise_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/coracle-io/coracle/internal/leaktest"
	"github.com/coracle-io/coracle/internal/supervise"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

// component returns the state of a component of a group. It fails the test if
// there is none of that name.
func component(t *testing.T, g *supervise.Group, name string) supervise.Component {
	t.Helper()
	status, _ := g.Status()
	for _, c := range status.Components {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no component %s in %+v", name, status)
	return supervise.Component{}
}

func TestPanicRestartsOneComponent(t *testing.T) {
	for name, fail := range map[string]func(context.Context) error{
		"an error": func(context.Context) error { return errors.New("broken") },
		"a panic":  func(context.Context) error { panic("broken") },
		"a panic of another goroutine": func(ctx context.Context) error {
			supervise.Go(ctx, func() { panic("broken") })
			<-ctx.Done()
			return nil
		},
		"a panic in a handler": func(ctx context.Context) error {
			supervise.FailOnPanic(ctx, func() { panic("broken") })
			<-ctx.Done()
			return nil
		},
		"a panic in a task": func(ctx context.Context) error {
			tasks, ctx := supervise.WithContext(ctx)
			tasks.Go(func() error { panic("broken") })
			tasks.Go(func() error { <-ctx.Done(); return nil })
			return tasks.Wait()
		},
		"an early return": func(context.Context) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				g := supervise.NewGroup(supervise.Options{})
				var calls, others atomic.Int32
				g.Go(ctx, "broken", func(ctx context.Context) error {
					supervise.Go(ctx, func() { others.Add(1); <-ctx.Done(); others.Add(-1) })
					if calls.Add(1) == 1 {
						return fail(ctx)
					}
					<-ctx.Done()
					return nil
				})
				g.Go(ctx, "sound", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
				synctest.Wait()
				failed := component(t, g, "broken")
				if failed.Phase != supervise.BackOff || failed.LastError == "" || others.Load() != 0 {
					t.Errorf("after a failure: %+v, %d goroutines are left", failed, others.Load())
				}
				if panicked := strings.Contains(name, "panic"); failed.Panicked != panicked || failed.Panics == 1 != panicked {
					t.Errorf("counted as a panic: %+v", failed)
				}
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
				if again := component(t, g, "broken"); again.Phase != supervise.Running || again.Restarts != 1 || again.LastError == "" {
					t.Errorf("after the back-off: %+v", again)
				}
				if other := component(t, g, "sound"); other.Phase != supervise.Running || other.Restarts != 0 || other.LastError != "" {
					t.Errorf("the other one: %+v", other)
				}
				cancel()
				g.Wait()
				if ended := component(t, g, "sound"); ended.Phase != supervise.Stopped || ended.LastError != "" {
					t.Errorf("after the end: %+v", ended)
				}
			})
		})
	}
}

func TestBackOffGrowsAndResets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var starts []time.Time
		lives := time.Duration(0)
		g := supervise.NewGroup(supervise.Options{})
		g.Go(ctx, "a", func(ctx context.Context) error {
			starts = append(starts, time.Now())
			select {
			case <-time.After(lives):
			case <-ctx.Done():
			}
			return errors.New("broken")
		})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if first, last := starts[1].Sub(starts[0]), starts[len(starts)-1].Sub(starts[len(starts)-2]); first > 100*time.Millisecond || last != 10*time.Second {
			t.Errorf("the first delay is %v, the last %v", first, last)
		}
		if len(starts) > 25 {
			t.Errorf("%d starts in two minutes", len(starts))
		}
		lives = time.Minute
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		if last := starts[len(starts)-1].Sub(starts[len(starts)-2]); last > lives+100*time.Millisecond {
			t.Errorf("after a minute of good work it waits %v", last-lives)
		}
		cancel()
		g.Wait()
	})
}

func TestInstanceHoldingALockIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		held := make(chan struct{})
		var calls int
		g := supervise.NewGroup(supervise.Options{})
		g.Go(ctx, "stuck", func(ctx context.Context) error {
			if calls++; calls == 1 {
				supervise.Go(ctx, func() { <-held })
				panic("broken")
			}
			<-ctx.Done()
			return nil
		})
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if c := component(t, g, "stuck"); c.Phase != supervise.Running || !strings.Contains(c.LastError, "abandoned") || !c.Panicked {
			t.Errorf("got %+v", c)
		}
		cancel()
		g.Wait()
		close(held)
	})
}

func TestGoroutinesAreAbandoned(t *testing.T) {
	for name, f := range map[string]func(context.Context, func(context.Context) error) error{
		"itself": func(ctx context.Context, f func(context.Context) error) error { return f(ctx) },
		"a run":  supervise.Run,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				held := make(chan struct{})
				var calls int
				g := supervise.NewGroup(supervise.Options{})
				g.Go(ctx, "early", func(ctx context.Context) error {
					return f(ctx, func(ctx context.Context) error {
						if calls++; calls == 1 {
							supervise.Go(ctx, func() { <-held; panic("late") })
							return nil
						}
						<-ctx.Done()
						return nil
					})
				})
				time.Sleep(11 * time.Second)
				synctest.Wait()
				if c := component(t, g, "early"); c.Phase != supervise.Running || c.Restarts != 1 || !strings.Contains(c.LastError, "abandoned") {
					t.Errorf("got %+v", c)
				}
				close(held)
				synctest.Wait()
				if c := component(t, g, "early"); c.Panics != 1 || c.Restarts != 1 {
					t.Errorf("after a panic of an abandoned goroutine: %+v", c)
				}
				cancel()
				g.Wait()
			})
		})
	}
}

// Two running parts never share a name: a restart of one would clear the
// conditions of the other.
func TestPartsWithOneNameAreDistinct(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		g := supervise.NewGroup(supervise.Options{})
		fail := make(chan struct{})
		g.Go(ctx, "server", func(ctx context.Context) error {
			for range 2 {
				supervise.Go(ctx, func() {
					supervise.KeepRunning(ctx, "file", func(ctx context.Context) error {
						supervise.Report(ctx, "Unreadable", errors.New("denied"))
						select {
						case <-ctx.Done():
						case <-fail:
						}
						return nil
					})
				})
			}
			<-ctx.Done()
			return nil
		})
		synctest.Wait()
		fail <- struct{}{}
		synctest.Wait()
		for _, name := range []string{"server/file", "server/file-2"} {
			if c := component(t, g, name); len(c.Conditions) != 1 {
				t.Errorf("got %+v", c)
			}
		}
		cancel()
		g.Wait()
		status, _ := g.Status()
		if len(status.Components) != 3 {
			t.Errorf("got %+v", status)
		}
	})
}

// Readers of a status, such as the supervisor of processes, have buffers of
// bounded size.
func TestErrorTextsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		long := errors.New(strings.Repeat("ä", 8<<10))
		g := supervise.NewGroup(supervise.Options{})
		failed := false
		g.Go(ctx, "talkative", func(ctx context.Context) error {
			if !failed {
				failed = true
				return long
			}
			supervise.Report(ctx, "Unreachable", long)
			<-ctx.Done()
			return nil
		})
		time.Sleep(time.Second)
		synctest.Wait()
		c := component(t, g, "talkative")
		for _, text := range []string{c.LastError, c.Conditions[0].Message} {
			if len(text) > 4<<10 || !utf8.ValidString(text) || !strings.HasSuffix(text, "...") {
				t.Errorf("%d bytes, valid: %v", len(text), utf8.ValidString(text))
			}
		}
		cancel()
		g.Wait()
	})
}

func TestPartRestartsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var whole, part int
		g := supervise.NewGroup(supervise.Options{})
		g.Go(ctx, "manager", func(ctx context.Context) error {
			whole++
			supervise.KeepRunning(ctx, "deployment", func(ctx context.Context) error {
				if part++; part < 3 {
					panic("broken")
				}
				<-ctx.Done()
				return nil
			})
			return nil
		})
		time.Sleep(time.Second)
		synctest.Wait()
		if c := component(t, g, "manager/deployment"); whole != 1 || part != 3 || c.Restarts != 2 || c.Panics != 2 || c.Phase != supervise.Running {
			t.Errorf("%d starts of the whole, %d of the part: %+v", whole, part, c)
		}
		var text = `# HELP coracle_component_panics_total [ALPHA] Number of panics in the component, by which it ended or gave up one piece of work.
# TYPE coracle_component_panics_total counter
coracle_component_panics_total{component="manager"} 0
coracle_component_panics_total{component="manager/deployment"} 2
# HELP coracle_component_restarts_total [ALPHA] Number of times the component was started again after it had failed.
# TYPE coracle_component_restarts_total counter
coracle_component_restarts_total{component="manager"} 0
coracle_component_restarts_total{component="manager/deployment"} 2
`
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(g.Metrics())
		if err := testutil.GatherAndCompare(registry, strings.NewReader(text)); err != nil {
			t.Error(err)
		}
		cancel()
		g.Wait()
		if c := component(t, g, "manager/deployment"); c.Phase != supervise.Stopped {
			t.Errorf("the part after the end: %+v", c)
		}
	})
}

func TestFailingParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var inner context.Context
		g := supervise.NewGroup(supervise.Options{})
		g.Go(ctx, "manager", func(ctx context.Context) error {
			inner = ctx
			supervise.Go(ctx, func() {
				supervise.KeepRunning(ctx, "job", func(context.Context) error { return errors.New("broken") })
			})
			supervise.KeepRunning(ctx, "deployment", func(ctx context.Context) error { <-ctx.Done(); return nil })
			return nil
		})
		synctest.Wait()
		if f := supervise.FailingParts(inner); len(f) != 2 || f["job"] != nil || f["deployment"] != nil {
			t.Errorf("after the first failure: %v", f)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if f := supervise.FailingParts(inner); f["job"] == nil || f["deployment"] != nil {
			t.Errorf("after a minute of failures: %v", f)
		}
		if f := supervise.FailingParts(t.Context()); len(f) != 0 {
			t.Errorf("outside of a component: %v", f)
		}
		cancel()
		g.Wait()
	})
}

func TestConditionsAndChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		away := make(chan error)
		g := supervise.NewGroup(supervise.Options{})
		g.Go(ctx, "etcd", func(ctx context.Context) error {
			for {
				select {
				case err := <-away:
					supervise.Report(ctx, "Unreachable", err)
				case <-ctx.Done():
					return nil
				}
			}
		})
		synctest.Wait()
		_, changed := g.Status()
		away <- errors.New("connection refused")
		<-changed
		c := component(t, g, "etcd")
		if len(c.Conditions) != 1 || c.Conditions[0].Name != "Unreachable" || c.Conditions[0].Message != "connection refused" {
			t.Errorf("got %+v", c)
		}
		if raw, err := json.Marshal(c); err != nil || !strings.Contains(string(raw), `"conditions":[{"name":"Unreachable"`) {
			t.Errorf("as JSON: %s, %v", raw, err)
		}
		away <- nil
		synctest.Wait()
		if c := component(t, g, "etcd"); len(c.Conditions) != 0 {
			t.Errorf("got %+v", c)
		}
		cancel()
		g.Wait()
	})
}

func TestRunWaitsAndReturnsTheFirstError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		var ended atomic.Bool
		err := supervise.Run(t.Context(), func(ctx context.Context) error {
			supervise.Go(ctx, func() { <-ctx.Done(); time.Sleep(time.Second); ended.Store(true) })
			supervise.Go(ctx, func() { panic(broken) })
			<-ctx.Done()
			return ctx.Err()
		})
		panicked := (*supervise.Panic)(nil)
		if !errors.Is(err, broken) || !errors.As(err, &panicked) || len(panicked.Stack) == 0 || !ended.Load() {
			t.Errorf("got %v, all have ended: %v", err, ended.Load())
		}
	})
}

func TestPanicAfterTheFailureIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		g := supervise.NewGroup(supervise.Options{})
		g.Go(ctx, "late", func(ctx context.Context) error {
			supervise.Fail(ctx, errors.New("broken"))
			panic("over what is half done")
		})
		synctest.Wait()
		if c := component(t, g, "late"); c.Panics != 1 || c.LastError != "broken" {
			t.Errorf("got %+v", c)
		}
		cancel()
		g.Wait()
	})
}

// Informers call RecordPanic with a nil error for every notification.
func TestRecordPanicOfNilDoesNotAllocate(t *testing.T) {
	ctx := t.Context()
	if allocations := testing.AllocsPerRun(100, func() { supervise.RecordPanic(ctx, nil) }); allocations > 0 {
		t.Errorf("%v allocations, want none", allocations)
	}
}

// RunOnce does not restart the component, but counts its panics.
func TestRunOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		err := supervise.RunOnce(t.Context(), "kubelet", func(ctx context.Context) error {
			supervise.RecordPanic(ctx, supervise.Call(func() error { panic("over one pod") }))
			supervise.Go(ctx, func() { panic("over all") })
			<-ctx.Done()
			registry := prometheus.NewRegistry()
			registry.MustRegister(supervise.Metrics(ctx))
			if n, err := testutil.GatherAndCount(registry, "coracle_component_panics_total"); n != 1 || err != nil {
				t.Errorf("%d components are counted, %v", n, err)
			}
			return ctx.Err()
		})
		if panicked := (*supervise.Panic)(nil); !errors.As(err, &panicked) || panicked.Value != "over all" {
			t.Errorf("it ended with %v", err)
		}
	})
}

func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		begun := time.Now()
		if !supervise.Pause(ctx, 0) || !supervise.Pause(ctx, time.Minute) || time.Since(begun) != time.Minute {
			t.Errorf("a minute took %v", time.Since(begun))
		}
		cancel()
		if supervise.Pause(ctx, 0) || supervise.Pause(ctx, time.Minute) || time.Since(begun) != time.Minute {
			t.Errorf("a pause after the end took %v", time.Since(begun)-time.Minute)
		}
	})
}
