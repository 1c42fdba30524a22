package workload

import "testing"

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
