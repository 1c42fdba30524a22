package profile

import (
	"context"
	"slices"
	"testing"

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
