package image

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A pull that never ends, and many pulls of one namespace, do not keep others waiting.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTurns(1)
		endless, err := q.take(t.Context(), "slow")
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		var order []string
		done := make(chan string)
		for _, name := range []string{"slow/1", "slow/2", "slow/3", "web/1", "db/1", "web/2"} {
			go func() {
				namespace, _, _ := strings.Cut(name, "/")
				end, err := q.take(t.Context(), namespace)
				if err != nil {
					t.Error(err)
				}
				done <- name
				end()
			}()
			synctest.Wait() // so that they wait in this order
		}
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		go func() {
			_, err := q.take(ctx, "gone")
			left <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("after its context a pull waits: %v", err)
		}
		for range 6 {
			order = append(order, <-done)
		}
		if got, want := strings.Join(order, " "), "slow/1 web/1 db/1 slow/2 web/2 slow/3"; got != want {
			t.Errorf("pulls began as %s, want %s", got, want)
		}
		if waited := time.Since(began); waited != longestTurn {
			t.Errorf("pulls waited %v behind one that does not end", waited)
		}
		endless()
		synctest.Wait()
		if q.free != 1 || len(q.order)+len(q.waiting) > 0 {
			t.Errorf("%d turns are free, %v wait", q.free, q.order)
		}
	})
}

// A turn that comes to a pull as it gives up is passed on.
func TestTurnThatComesTooLate(t *testing.T) {
	q := newTurns(1)
	end, err := q.take(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	turn := make(chan struct{})
	q.waiting["b"], q.order = []chan struct{}{turn}, []string{"b"}
	end()
	q.leave("b", turn)
	if q.free != 1 {
		t.Errorf("%d turns are free", q.free)
	}
}
