package pace

import (
	"testing"
	"time"
)

// After a burst, one is done in each period. A rest permits the next burst.
func TestTake(t *testing.T) {
	const burst, period = 3, time.Second
	p, now := Pace{}, time.Unix(1000, 0)
	for i, step := range []struct{ after, want time.Duration }{
		{0, 0}, {0, 0}, {0, 0},
		{0, time.Second}, {200 * time.Millisecond, 800 * time.Millisecond}, {800 * time.Millisecond, 0},
		{500 * time.Millisecond, 500 * time.Millisecond},
		{time.Hour, 0}, {0, 0}, {0, 0}, {0, time.Second},
	} {
		now = now.Add(step.after)
		if got := p.Take(now, burst, period); got != step.want {
			t.Errorf("step %d: wait %v, want %v", i, got, step.want)
		}
	}
	p.Count(now, period)
	if got := p.Take(now, burst, period); got != 2*time.Second {
		t.Errorf("after one that did not wait: wait %v", got)
	}
}
