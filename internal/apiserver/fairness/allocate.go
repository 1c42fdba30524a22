package fairness

import "math"

// claim is what one level wants of the seats that levels share.
type claim struct {
	target       float64
	lower, upper int // lower <= upper
}

// leastTarget keeps levels that want nothing in proportion, too.
const leastTarget = 0.001

// allocate divides seats among claims: each gets the same fraction of its
// target, or the bound that this fraction is beyond. If even the lower bounds
// are too much, each gets its lower bound; if the upper are too little, its
// upper bound.
func allocate(seats int, claims []claim) (allotted []int, fraction float64) {
	sum := func(f float64) (total float64) {
		for _, c := range claims {
			total += c.at(f)
		}
		return total
	}
	// The sum grows with the fraction, from the lower bounds at none to the
	// upper ones at enough.
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
		allotted = append(allotted, int(math.Round(c.at(fraction))))
	}
	return allotted, fraction
}

func (c claim) at(fraction float64) float64 {
	return min(max(fraction*max(c.target, leastTarget), float64(c.lower)), float64(c.upper))
}
