package workload

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestExpectations(t *testing.T) {
	e := newExpectations()
	check := func(what string, want bool) {
		t.Helper()
		if got := e.Satisfied("rs"); got != want {
			t.Errorf("%s: satisfied %v", what, got)
		}
	}
	check("at first", true)
	e.ExpectCreations("rs", 2)
	check("two creations under way", false)
	e.ObserveCreation("rs")
	check("one seen", false)
	e.ObserveCreation("rs")
	check("both seen", true)
	e.ExpectDeletions("rs", "a", "b")
	e.ObserveDeletion("rs", "a")
	e.ObserveDeletion("rs", "a")
	check("one of two deletions seen twice", false)
	e.ObserveDeletion("rs", "b")
	check("both deletions seen", true)
	e.ExpectCreations("rs", 1)
	e.Forget("rs")
	check("forgotten", true)
}

// Expectations that were never fulfilled and have timed out do not add to later ones.
func TestExpiredExpectations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newExpectations()
		for range 3 {
			e.ExpectCreations("rs", 1)
			e.ExpectDeletions("rs", "lost")
			time.Sleep(expectationTimeout + time.Second)
			if !e.Satisfied("rs") {
				t.Error("not satisfied after the timeout")
			}
		}
		e.ExpectCreations("rs", 1)
		e.ExpectDeletions("rs", "a")
		e.ObserveDeletion("rs", "a")
		if e.Satisfied("rs") {
			t.Error("satisfied before the creation was observed")
		}
		e.ObserveCreation("rs")
		if !e.Satisfied("rs") {
			t.Error("not satisfied after all changes were observed")
		}
	})
}

// A creation that was not expected is not taken for one that is expected later.
func TestUnexpectedCreation(t *testing.T) {
	e := newExpectations()
	e.ExpectDeletions("set", "a")
	e.ObserveCreation("set")
	e.ExpectCreations("set", 1)
	e.ObserveDeletion("set", "a")
	if e.Satisfied("set") {
		t.Error("satisfied before the creation was observed")
	}
}
