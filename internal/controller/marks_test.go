package controller

import "testing"

func TestMarks(t *testing.T) {
	var m Marks[string]
	for i, step := range []struct {
		key            string
		marked, before bool
	}{
		{"a", false, false}, {"a", true, false}, {"a", true, true}, {"b", false, false}, {"a", false, true}, {"a", false, false},
	} {
		if before := m.Set(step.key, step.marked); before != step.before {
			t.Errorf("step %d: Set(%q, %t) = %t", i, step.key, step.marked, before)
		}
	}
}
