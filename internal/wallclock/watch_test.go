package wallclock

import (
	"testing"
	"time"

	"github.com/coracle-io/coracle/internal/wallclock/wallclocktest"
)

func TestWasSet(t *testing.T) {
	before := time.Now()
	for _, c := range []struct {
		elapsed, set time.Duration
		want         bool
	}{
		{0, 0, false}, {time.Minute, 0, false}, {time.Hour, 0, false},
		{time.Minute, time.Second, false}, {time.Minute, -time.Second, false},
		{time.Minute, time.Hour, true}, {time.Minute, -time.Hour, true}, {time.Hour, -2 * time.Second, true},
	} {
		if got := wasSet(before, wallclocktest.Set(before.Add(c.elapsed), c.set)); got != c.want {
			t.Errorf("after %v and set by %v: %t", c.elapsed, c.set, got)
		}
	}
}
