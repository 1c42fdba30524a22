package volume

import (
	"testing"
	"time"

	"github.com/coracle-io/coracle/internal/wallclock/wallclocktest"
)

// A token or a certificate is renewed once servers may refuse it because the clock was set: one that
// has expired, and one that was issued in the future.
func TestTokenWhileTheClockIsSet(t *testing.T) {
	begin := time.Now()
	for _, c := range []struct {
		after, set time.Duration
		want       bool
	}{
		{0, 0, true}, {47 * time.Minute, 0, true}, {48 * time.Minute, 0, false},
		{time.Minute, time.Hour, false}, {time.Minute, -time.Hour, false}, {0, -30 * time.Second, true}, {time.Minute, 30 * time.Second, true},
	} {
		known := token{value: "t", issued: begin.Round(0), renew: begin.Round(0).Add(48 * time.Minute)}
		if got := known.fresh(wallclocktest.Set(begin.Add(c.after), c.set)); got != c.want {
			t.Errorf("after %v and set by %v: fresh %t", c.after, c.set, got)
		}
		issued := certificate{chain: []byte("chain"), received: begin.Round(0), renew: begin.Round(0).Add(48 * time.Minute)}
		if got := issued.fresh(wallclocktest.Set(begin.Add(c.after), c.set)); got != c.want {
			t.Errorf("after %v and set by %v: a certificate is fresh %t", c.after, c.set, got)
		}
	}
	if (&token{}).fresh(begin) {
		t.Error("there is no token, and it is fresh")
	}
}
