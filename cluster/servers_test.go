package cluster

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/supervise"
)

// TestAComponentThatOutlivesItsServer checks that a component which does not
// end with its instance of the API server is abandoned, in its first goroutine
// or in another.
func TestAComponentThatOutlivesItsServer(t *testing.T) {
	for name, stuck := range map[string]func(ctx context.Context, release <-chan struct{}){
		"itself": func(_ context.Context, release <-chan struct{}) { <-release },
		"a goroutine": func(ctx context.Context, release <-chan struct{}) {
			supervise.Go(ctx, func() { <-release })
			<-ctx.Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first, end := context.WithCancel(t.Context())
				release, follows := make(chan struct{}), make(chan struct{})
				s := &servers{}
				s.set(&instance{life: first})
				g := supervise.NewGroup(supervise.Options{})
				ctx, cancel := context.WithCancel(t.Context())
				g.Go(ctx, "scheduler", s.with(func(ctx context.Context, _ client.Provider) error {
					if first.Err() == nil {
						stuck(ctx, release)
						return nil
					}
					close(follows)
					<-ctx.Done()
					return nil
				}))
				synctest.Wait()
				end()
				s.set(&instance{life: t.Context()})
				select {
				case <-follows:
				case <-time.After(time.Minute):
					t.Error("it never switches to the next server")
				}
				status, _ := g.Status()
				if c := status.Components[0]; c.Restarts != 1 || c.LastError == "" {
					t.Errorf("the failure is not reported: %+v", c)
				}
				close(release)
				cancel()
				g.Wait()
			})
		})
	}
}
