package wallclock

import (
	"context"
	"time"

	"github.com/coracle-io/coracle/internal/supervise"
)

const (
	// period is the time between two looks at the clocks.
	period = time.Minute
	// tolerance is the difference between the clocks in period from which the wall clock
	// was set. NTP slews it by at most 30 ms.
	tolerance = time.Second
)

// Watch returns a task that calls set, within a minute, when the wall clock was set or the
// machine was suspended. A timer runs on the monotonic clock, so what is to happen at a time of
// the wall clock must then be computed anew.
func Watch(set func()) func(context.Context) error {
	return func(ctx context.Context) error {
		before := time.Now()
		supervise.Every(ctx, period, func() {
			now := time.Now()
			if wasSet(before, now) {
				set()
			}
			before = now
		})
		return nil
	}
}

// wasSet reports whether the wall clock was set between two readings of time.Now.
func wasSet(before, now time.Time) bool {
	by := now.Round(0).Sub(before.Round(0)) - now.Sub(before)
	return by.Abs() > tolerance
}
