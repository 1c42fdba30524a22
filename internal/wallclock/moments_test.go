package wallclock

import (
	"testing"
	"time"

	"github.com/coracle-io/coracle/internal/wallclock/wallclocktest"
)

// A period after a stored time takes as long as it is, however the clock is set meanwhile.
func TestMoments(t *testing.T) {
	const period = 5 * time.Minute
	begin := time.Now()
	for _, c := range []struct {
		name    string
		stored  time.Duration // before begin
		set     time.Duration // by which the clock is set after the stored time was seen
		elapsed time.Duration // since begin
		left    time.Duration
	}{
		{"just stored", 0, 0, 0, period},
		{"stored before", 2 * time.Minute, 0, time.Minute, 2 * time.Minute},
		{"set back before it was seen", -time.Hour, 0, time.Minute, 4 * time.Minute},
		{"set back since", 0, -time.Hour, time.Minute, 4 * time.Minute},
		{"set forward since", 0, time.Hour, time.Minute, 4 * time.Minute},
		{"set forward by years", 0, 30 * 365 * 24 * time.Hour, time.Minute, 4 * time.Minute},
		{"over", 2 * time.Minute, -time.Hour, 4 * time.Minute, -time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			var m Moments[string]
			stored := begin.Add(-c.stored).Round(0)
			m.At("key", stored, begin)
			now := wallclocktest.Set(begin.Add(c.elapsed), c.set)
			if left := m.At("key", stored, now).Add(period).Sub(now); left != c.left {
				t.Errorf("%v are left, want %v", left, c.left)
			}
		})
	}
}

// Another stored time is another moment, and a key that was forgotten is new.
func TestMomentsChange(t *testing.T) {
	var m Moments[string]
	begin := time.Now()
	now := begin.Add(time.Hour)
	m.At("key", begin, begin)
	if at := m.At("key", begin.Add(time.Minute), now); !at.Equal(begin.Add(time.Minute)) {
		t.Errorf("the second stored time was %v after the first", at.Sub(begin))
	}
	ahead := now.Add(time.Hour)
	if at := m.At("key", ahead, now); !at.Equal(now) {
		t.Errorf("a time in the future was %v after now", at.Sub(now))
	}
	later := now.Add(time.Minute)
	if at := m.At("key", ahead, later); !at.Equal(now) {
		t.Errorf("a minute later it was %v after that", at.Sub(now))
	}
	m.Keep(func(key string) bool { return key == "key" })
	if at := m.At("key", ahead, later); !at.Equal(now) {
		t.Errorf("after others were dropped it was %v after that", at.Sub(now))
	}
	m.Forget("key")
	if at := m.At("key", ahead, later); !at.Equal(later) {
		t.Errorf("after it was forgotten it was %v after now", at.Sub(later))
	}
}
