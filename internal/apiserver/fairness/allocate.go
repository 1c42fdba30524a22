package fairness

import "math"

// claim is the demand of one level for the shared seats.
type claim struct {
	target       float64
	lower, upper int // lower <= upper
}

// leastTarget is the least target of a level, so that levels without demand get
// a proportional part, too.
const leastTarget = 0.001

// allocate divides seats among claims. Each claim gets the same fraction of its
// target, within its bounds. If the seats are fewer than the lower bounds or
// more than the upper ones, each gets that bound.
func allocate(seats int, claims []claim) (allocated []int, fraction float64) {
	sum := func(f float64) (total float64) {
		for _, c := range claims {
			total += c.at(f)
		}
		return total
	}
	// The sum grows with the fraction, from the lower bounds at zero to the
	// upper bounds at enough.
	enough := 0.0
	for _, c := range claims {
		enough = max(enough, float64(c.upper)/max(c.target, leastTarget))
	}
	least, most := 0.0, enough
	for range 100 {
		if fraction = (least + most) / 2; sum(fraction) > float64(seats) {
			most = fraction
		} else {
			least = fraction
		}
	}
	for _, c := range claims {
		allocated = append(allocated, int(math.Round(c.at(fraction))))
	}
	return allocated, fraction
}

func (c claim) at(fraction float64) float64 {
	return min(max(fraction*max(c.target, leastTarget), float64(c.lower)), float64(c.upper))
}
