package fairness

import (
	"math"
	"time"
)

// demand tracks how many seats the executing and waiting requests of a level
// would use.
type demand struct {
	seats          int
	highest        int
	began, changed time.Time
	sum, squares   float64 // integrals of the seats and of their square since began, in seconds
}

// observed is the demand over a period.
type observed struct {
	highest            int
	average, deviation float64
}

func (d *demand) advance(now time.Time) {
	if elapsed := now.Sub(d.changed).Seconds(); elapsed > 0 {
		seats := float64(d.seats)
		d.sum += seats * elapsed
		d.squares += seats * seats * elapsed
		d.changed = now
	}
}

// add changes the demand. Calls may be slightly out of order.
func (d *demand) add(seats int, now time.Time) {
	d.advance(now)
	d.seats += seats
	d.highest = max(d.highest, d.seats)
}

// take returns the demand since the last call, and starts a new period.
func (d *demand) take(now time.Time) observed {
	d.advance(now)
	o := observed{highest: d.highest, average: float64(d.seats)}
	if total := d.changed.Sub(d.began).Seconds(); total > 0 {
		o.average = d.sum / total
		o.deviation = math.Sqrt(max(d.squares/total-o.average*o.average, 0))
	}
	*d = demand{seats: d.seats, highest: d.seats, began: d.changed, changed: d.changed}
	return o
}

// smoothing is the part of the former demand that remains after a period: it
// halves in five minutes.
const smoothing = 0.977

// smoothed returns the demand to plan for. It rises at once with the current
// demand plus a deviation, and falls slowly.
func (o observed) smoothed(before float64) float64 {
	envelope := o.average + o.deviation
	return max(envelope, smoothing*before+(1-smoothing)*envelope)
}
