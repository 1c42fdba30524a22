package profile

import (
	"context"
	"testing"

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
