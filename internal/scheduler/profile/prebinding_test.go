package profile

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// A pod whose PreBind plugins are interrupted fails, also if they succeed or reject
// it nevertheless. Before and after them there is nothing to interrupt.
func TestCancelPreBind(t *testing.T) {
	for name, result := range map[string]*framework.Status{
		"they succeed": nil,
		"they reject":  framework.NewStatus(framework.Unschedulable, "Y", "other"),
		"they fail":    framework.AsStatus("Y", context.Canceled),
	} {
		b := newPreBinding()
		if b.cancel("p", "X", "early") {
			t.Errorf("%s: interrupted before they ran", name)
		}
		status := b.run(t.Context(), "p", func(ctx context.Context) *framework.Status {
			if b.cancel("other", "X", "no") || ctx.Err() != nil {
				t.Errorf("%s: another pod was interrupted", name)
			}
			if !b.cancel("p", "X", "preempted") || !b.cancel("p", "X", "again") {
				t.Errorf("%s: not interrupted", name)
			}
			if ctx.Err() == nil {
				t.Errorf("%s: the plugins go on", name)
			}
			return result
		})
		if status.Code() != framework.Error || status.Message() != "preempted" {
			t.Errorf("%s: %v %q", name, status.Code(), status.Message())
		}
		if b.cancel("p", "X", "late") {
			t.Errorf("%s: interrupted after they ran", name)
		}
	}
}

// preparing is a PreBind plugin that calls a function.
type preparing struct {
	framework.PreBindPlugin
	name    string
	prepare func(context.Context) *framework.Status
}

func (p preparing) Name() string { return p.name }

func (p preparing) PreBind(ctx context.Context, _ *framework.CycleState, _ *framework.PodInfo, _ string) *framework.Status {
	return p.prepare(ctx)
}

// PreBind plugins run side by side. The first one that fails ends the others.
func TestPreBindSideBySide(t *testing.T) {
	fails := func(context.Context) *framework.Status { return framework.AsStatus("", errors.New("out of order")) }
	panics := func(context.Context) *framework.Status { panic("out of order") }
	rejects := func(context.Context) *framework.Status {
		return framework.NewStatus(framework.Unschedulable, "A", "no")
	}
	waits := func(ctx context.Context) *framework.Status {
		<-ctx.Done()
		return framework.AsStatus("", ctx.Err())
	}
	for _, test := range []struct {
		name    string
		plugins []func(context.Context) *framework.Status
		code    framework.Code
		message string
	}{
		{"one fails", []func(context.Context) *framework.Status{fails, waits}, framework.Error, `running PreBind plugin "P0": out of order`},
		{"the last one fails", []func(context.Context) *framework.Status{waits, waits, fails}, framework.Error, `running PreBind plugin "P2": out of order`},
		{"one panics", []func(context.Context) *framework.Status{waits, panics}, framework.Error, `running PreBind plugin "P1": panic: out of order`},
		{"one rejects the pod", []func(context.Context) *framework.Status{waits, rejects}, framework.Unschedulable, "no"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if s := prepare(t, test.plugins...); s.Code() != test.code || s.Message() != test.message {
					t.Errorf("%v %q, want %v %q", s.Code(), s.Message(), test.code, test.message)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		met := make(chan bool)
		first := func(context.Context) *framework.Status { met <- true; return nil }
		second := func(context.Context) *framework.Status { <-met; return nil }
		if s := prepare(t, first, second); !s.IsSuccess() {
			t.Errorf("two that wait for each other: %v %q", s.Code(), s.Message())
		}
	})
}

// prepare runs PreBind plugins P0, P1 and so on.
func prepare(t *testing.T, plugins ...func(context.Context) *framework.Status) *framework.Status {
	h, c := &framework.Handle{}, &cycle{}
	for i, f := range plugins {
		c.preBind = append(c.preBind, preparing{name: fmt.Sprint("P", i), prepare: f})
	}
	p := &Profile{cycles: framework.NewStateKey[*cycle](h), preBinding: newPreBinding()}
	state := framework.NewCycleState(h)
	p.cycles.Put(state, c)
	return p.RunPreBindPlugins(t.Context(), state, framework.NewPodInfo(&v1.Pod{}), "n")
}
