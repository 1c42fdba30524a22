// Package pace bounds how often something is done that others can ask for all the time.
package pace

import "time"

// Pace lets something be done a number of times at once, and then once in each period
// (the generic cell rate algorithm). Its zero value has done nothing. It is not safe for
// concurrent use.
type Pace struct {
	due time.Time // when all so far would have been done, one in each period
}

// Take counts one at the time now and returns 0 if it can be done. Otherwise it returns
// how long it has to wait.
func (p *Pace) Take(now time.Time, burst int, period time.Duration) (wait time.Duration) {
	if p.due.After(now) {
		wait = p.due.Sub(now) - time.Duration(burst-1)*period
	}
	if wait > 0 {
		return wait
	}
	p.Count(now, period)
	return 0
}

// Count counts one that is done in any case.
func (p *Pace) Count(now time.Time, period time.Duration) {
	if p.due.Before(now) {
		p.due = now
	}
	p.due = p.due.Add(period)
}
