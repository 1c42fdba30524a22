package fairness

import (
	"math"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/util/shufflesharding"
)

// limits are how many seats a priority level has.
type limits struct {
	nominal int
	// lower and upper bound the seats that it has at a time, as others borrow
	// from it and it from others.
	lower, upper int
}

// shares is what the configuration of a level says of its part of the
// server's seats. Absent fields have the API's defaults.
type shares struct {
	exempt              bool
	nominal             int32
	lendable, borrowing int32 // percentages; borrowing below 0 is without a limit
}

func sharesOf(p *flowcontrolv1.PriorityLevelConfiguration) shares {
	or := func(v *int32, otherwise int32) int32 {
		if v == nil {
			return otherwise
		}
		return *v
	}
	if p.Spec.Type == flowcontrolv1.PriorityLevelEnablementExempt {
		s := shares{exempt: true, borrowing: -1}
		if e := p.Spec.Exempt; e != nil {
			s.nominal, s.lendable = or(e.NominalConcurrencyShares, 0), or(e.LendablePercent, 0)
		}
		return s
	}
	l := p.Spec.Limited
	return shares{
		nominal:  or(l.NominalConcurrencyShares, 30),
		lendable: or(l.LendablePercent, 0), borrowing: or(l.BorrowingLimitPercent, -1),
	}
}

// limits divides the server's seats: total is the sum of all levels' shares.
func (s shares) limits(seats int, total float64) limits {
	nominal := 0
	if total > 0 {
		nominal = int(math.Ceil(float64(seats) * float64(s.nominal) / total))
	}
	percent := func(p int32) int { return int(math.Round(float64(nominal) * float64(p) / 100)) }
	l := limits{nominal: nominal, lower: nominal - percent(s.lendable), upper: seats}
	if s.borrowing >= 0 {
		l.upper = nominal + percent(s.borrowing)
	}
	l.upper = max(l.upper, l.lower)
	return l
}

// queueing is how requests wait at a level; nil if they do not.
type queueing struct {
	queues, hand int
	length       int // of one queue
	dealer       *shufflesharding.Dealer
}

func queueingOf(p *flowcontrolv1.PriorityLevelConfiguration) *queueing {
	if p.Spec.Limited == nil || p.Spec.Limited.LimitResponse.Queuing == nil {
		return nil
	}
	c := p.Spec.Limited.LimitResponse.Queuing
	dealer, err := shufflesharding.NewDealer(int(c.Queues), int(c.HandSize))
	if err != nil {
		return nil // which validation does not let through
	}
	return &queueing{queues: int(c.Queues), hand: int(c.HandSize), length: int(c.QueueLengthLimit), dealer: dealer}
}

// ObjectsPerSeat and the other widths of requests are upstream's, so that
// levels made for it serve as many requests here.
const (
	ObjectsPerSeat = 100
	widestOfAll    = 10
	// widestShare is how much of a level's seats one request may take.
	widestShare = 0.15
)

// widest is how many seats one request may take at a level: no more than its
// part of them, and so few that a hand of such requests fits.
func widest(l limits, q *queueing) int {
	most := int(math.Ceil(float64(l.nominal) * widestShare))
	if q != nil {
		most = min(most, l.nominal/q.hand)
	}
	return min(max(most, 1), widestOfAll)
}

// width is how many seats a request takes that has the server go through so
// many objects.
func width(objects, widest int) int {
	return min(max((objects+ObjectsPerSeat-1)/ObjectsPerSeat, 1), widest)
}
