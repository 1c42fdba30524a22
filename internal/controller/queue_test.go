package controller

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

// A controller may fail before its workers begin, again and again: what it has
// made by then must not stay.
func TestAQueueWithoutWorkersLeavesNothing(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for range 50 {
		q := NewQueue("test", func(context.Context, string) error { return nil })
		q.Add("now")
		q.AddAfter("later", time.Hour)
	}
}

// What was added before the workers begin is not lost, nor handed out early.
func TestWhatWasAddedBeforeTheWorkersIsHandedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		seen := map[string][]time.Duration{}
		q := NewQueue("test", func(_ context.Context, key string) error {
			seen[key] = append(seen[key], time.Since(began))
			if key == "fails" && len(seen[key]) < 3 {
				return errors.New("not yet")
			}
			return nil
		})
		q.Add("now")
		q.Add("fails")
		q.AddAfter("later", time.Minute)
		q.AddAfter("later", time.Hour)
		q.AddAfter("past", time.Second)
		time.Sleep(10 * time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- q.Workers(1)(ctx) }()
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if got := seen["now"]; len(got) != 1 || got[0] != 10*time.Second {
			t.Errorf("now: %v", got)
		}
		if got := seen["past"]; len(got) != 1 || got[0] != 10*time.Second {
			t.Errorf("past: %v", got)
		}
		if got := seen["later"]; len(got) != 1 || got[0].Round(time.Second) != time.Minute {
			t.Errorf("later: %v", got)
		}
		if got := seen["fails"]; len(got) != 3 || got[1]-got[0] != 5*time.Millisecond || got[2]-got[1] != 10*time.Millisecond {
			t.Errorf("fails: %v", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		q.AddAfter("after the end", time.Second)
	})
}
