package recovery

import (
	"context"
	"errors"
	"testing"

	"github.com/coracle-io/coracle/internal/supervise"
)

// The status of the supervised component counts panics.
func TestAPanicIsCounted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	g := supervise.NewGroup(supervise.Options{})
	called := make(chan struct{})
	g.Go(ctx, "server", func(ctx context.Context) error {
		if Call(ctx, "work", func() error { panic("broken") }) == nil {
			t.Error("Call returned no error after a panic")
		}
		close(called)
		<-ctx.Done()
		return nil
	})
	<-called
	status, _ := g.Status()
	if c := status.Components[0]; c.Panics != 1 || c.Restarts != 0 || c.LastError != "work: panic: broken" {
		t.Errorf("got %+v", c)
	}
	cancel()
	g.Wait()
}

func TestCall(t *testing.T) {
	failed := errors.New("failed")
	if err := Call(t.Context(), "work", func() error { return failed }); !errors.Is(err, failed) {
		t.Error(err)
	}
	var none map[string]int
	err := Call(t.Context(), "work", func() error { none["x"] = 1; return nil })
	if err == nil || err.Error() != "work: panic: assignment to entry in nil map" {
		t.Error(err)
	}
}
