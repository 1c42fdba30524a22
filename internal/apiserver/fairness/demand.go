package fairness

import (
	"math"
	"time"
)

// demand follows how many seats a level could use: those of its requests that
// are executing or waiting.
type demand struct {
	seats          int
	highest        int
	began, changed time.Time
	sum, squares   float64 // of the seats, in seat and square seat seconds since began
}

// observed is the demand over a time.
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

// take returns the demand since the last call, and begins anew.
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

// smoothing makes what is left of a demand that has gone halve every 5
// minutes.
const smoothing = 0.977

// smoothed is the demand to plan for: at once what is needed now with some
// room, and only slowly less than before.
func (o observed) smoothed(before float64) float64 {
	envelope := o.average + o.deviation
	return max(envelope, smoothing*before+(1-smoothing)*envelope)
}
