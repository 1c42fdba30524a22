package processes

import "time"

// A process that ends is started again at once if it had done its work for
// goodLife, and after firstDelay if it had done so for fairLife. If it had
// not, the delay doubles each time, up to lastDelay.
const (
	firstDelay = 500 * time.Millisecond
	lastDelay  = 10 * time.Second
	goodLife   = 10 * time.Second
	fairLife   = time.Second
)

// backoff is how long the last delay was; the first start again has none.
type backoff struct {
	begun bool
	last  time.Duration
}

// after returns the delay that follows the end of a process that was ready for
// that long; 0 is never.
func (b *backoff) after(ready time.Duration) time.Duration {
	switch {
	case !b.begun || ready >= goodLife:
		b.last = 0
	case ready >= fairLife:
		b.last = firstDelay
	default:
		b.last = min(max(2*b.last, firstDelay), lastDelay)
	}
	b.begun = true
	return b.last
}
