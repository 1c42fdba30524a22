package order

import "testing"

func TestFalseFirst(t *testing.T) {
	for _, c := range []struct {
		a, b bool
		want int
	}{{false, false, 0}, {false, true, -1}, {true, false, 1}, {true, true, 0}} {
		if got := FalseFirst(c.a, c.b); got != c.want {
			t.Errorf("FalseFirst(%v, %v) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
