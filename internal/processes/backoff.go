package processes

import "time"

// A process that has been ready for longRun is restarted at once when it ends,
// and one that has been ready for shortRun after firstDelay. Otherwise the
// delay doubles each time, up to lastDelay.
const (
	firstDelay = 500 * time.Millisecond
	lastDelay  = 10 * time.Second
	longRun    = 10 * time.Second
	shortRun   = time.Second
)

// backoff is the last delay; the first restart has none.
type backoff struct {
	begun bool
	last  time.Duration
}

// after returns the delay before the next start of a process that was ready for
// a time; 0 if it was never ready.
func (b *backoff) after(ready time.Duration) time.Duration {
	switch {
	case !b.begun || ready >= longRun:
		b.last = 0
	case ready >= shortRun:
		b.last = firstDelay
	default:
		b.last = min(max(2*b.last, firstDelay), lastDelay)
	}
	b.begun = true
	return b.last
}
