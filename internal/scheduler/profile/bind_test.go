package profile

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// reserving is a Reserve plugin that notes its Unreserve calls.
type reserving struct {
	framework.ReservePlugin
	name   string
	panics bool
	undone *[]string
}

func (r reserving) Name() string { return r.name }

func (r reserving) Unreserve(context.Context, *framework.CycleState, *framework.PodInfo, string) {
	*r.undone = append(*r.undone, r.name)
	if r.panics {
		panic("out of order")
	}
}

// A plugin that panics does not keep others from undoing what they reserved.
func TestUnreserveGoesOnAfterAPanic(t *testing.T) {
	var undone []string
	p := &Profile{points: points{reserve: []framework.ReservePlugin{
		reserving{name: "first", undone: &undone}, reserving{name: "second", undone: &undone, panics: true}, reserving{name: "third", undone: &undone},
	}}}
	p.RunUnreservePlugins(t.Context(), nil, nil, "n")
	if want := []string{"third", "second", "first"}; !slices.Equal(undone, want) {
		t.Errorf("undone %v, want %v", undone, want)
	}
}

// failing fails at each extension point of a binding.
type failing struct{ status *framework.Status }

func (failing) Name() string { return "Failing" }

func (f failing) Reserve(context.Context, *framework.CycleState, *framework.PodInfo, string) *framework.Status {
	return f.status
}

func (failing) Unreserve(context.Context, *framework.CycleState, *framework.PodInfo, string) {}

func (f failing) Permit(context.Context, *framework.CycleState, *framework.PodInfo, string) (*framework.Status, time.Duration) {
	return f.status, 0
}

func (f failing) PreBindPreFlight(context.Context, *framework.CycleState, *framework.PodInfo, string) *framework.Status {
	return f.status
}

func (f failing) PreBind(context.Context, *framework.CycleState, *framework.PodInfo, string) *framework.Status {
	return f.status
}

func (f failing) Bind(context.Context, *framework.CycleState, *framework.PodInfo, string) *framework.Status {
	return f.status
}

// An error says which plugin failed, and at which extension point.
func TestErrorsNameThePlugin(t *testing.T) {
	h := &framework.Handle{}
	f := failing{framework.AsStatus("Failing", errors.New("out of order"))}
	p := &Profile{cycles: framework.NewStateKey[*cycle](h), preBinding: newPreBinding(), points: points{
		reserve: []framework.ReservePlugin{f}, permit: []framework.PermitPlugin{f}, preBind: []framework.PreBindPlugin{f}, bind: []framework.BindPlugin{f},
	}}
	pod := framework.NewPodInfo(&v1.Pod{})
	for want, run := range map[string]func(context.Context, *framework.CycleState, *framework.PodInfo, string) *framework.Status{
		`running Reserve plugin "Failing": out of order`:   p.RunReservePlugins,
		`running Permit plugin "Failing": out of order`:    p.RunPermitPlugins,
		`running PreBindPreFlight "Failing": out of order`: p.RunPreBindPreFlights,
		`running PreBind plugin "Failing": out of order`:   p.RunPreBindPlugins,
		`running Bind plugin "Failing": out of order`:      p.RunBindPlugins,
	} {
		state := framework.NewCycleState(h)
		p.cycles.Put(state, &cycle{preBind: p.points.preBind})
		if s := run(t.Context(), state, pod, "n"); s.Code() != framework.Error || s.Message() != want {
			t.Errorf("%v %q, want %q", s.Code(), s.Message(), want)
		}
	}
}
