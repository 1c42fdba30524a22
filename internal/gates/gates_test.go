package gates

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// TestGates checks who waits for whom, and that no gate stays.
func TestGates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gates[string]
		enter := func(name string) func() {
			t.Helper()
			leave, err := g.Enter(t.Context(), name, 2)
			if err != nil {
				t.Fatal(err)
			}
			return leave
		}
		first, second, other := enter("a"), enter("a"), enter("b")
		third := make(chan func(), 1)
		go func() {
			if leave, err := g.Enter(t.Context(), "a", 2); err == nil {
				third <- leave
			}
		}()
		synctest.Wait()
		if len(third) != 0 {
			t.Error("three have passed a gate for two")
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if _, err := g.Enter(ended, "a", 2); !errors.Is(err, context.Canceled) {
			t.Errorf("a wait that has ended: %v", err)
		}
		first()
		(<-third)()
		second()
		other()
		leave, err := g.Enter(ended, "a", 2)
		if err != nil {
			t.Fatalf("a gate that nobody has passed: %v", err)
		}
		leave()
		if n := g.Len(); n != 0 {
			t.Errorf("%d gates are left", n)
		}
	})
}
