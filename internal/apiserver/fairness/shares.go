package fairness

import (
	"math"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/util/shufflesharding"
	"k8s.io/utils/ptr"
)

// limits are the numbers of seats of a priority level.
type limits struct {
	nominal int
	// lower and upper bound its current seats, given what others may borrow
	// from it and it from others.
	lower, upper int
}

// shares is a level's share of the server's seats in its configuration, with
// the API's defaults.
type shares struct {
	exempt              bool
	nominal             int32
	lendable, borrowing int32 // percentages; borrowing below 0 is unlimited
}

func sharesOf(p *flowcontrolv1.PriorityLevelConfiguration) shares {
	or := ptr.Deref[int32]
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

// limits returns the limits of a level. seats is the number of the server's
// seats, and total the sum of all levels' nominal shares.
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

// queueing is the configuration of a level's queues.
type queueing struct {
	queues, hand int
	length       int // the limit of one queue
	dealer       *shufflesharding.Dealer
}

func queueingOf(p *flowcontrolv1.PriorityLevelConfiguration) *queueing {
	if p.Spec.Limited == nil || p.Spec.Limited.LimitResponse.Queuing == nil {
		return nil
	}
	c := p.Spec.Limited.LimitResponse.Queuing
	dealer, err := shufflesharding.NewDealer(int(c.Queues), int(c.HandSize))
	if err != nil {
		return nil // validation refuses this
	}
	return &queueing{queues: int(c.Queues), hand: int(c.HandSize), length: int(c.QueueLengthLimit), dealer: dealer}
}

// ObjectsPerSeat and the other constants of request widths are upstream's, so
// that priority levels have the same effect.
const (
	ObjectsPerSeat = 100
	BytesPerSeat   = 100_000
	widestOfAll    = 10
	// widestShare is the part of a level's seats that one request may take.
	widestShare = 0.15
)

// widest returns the maximum number of seats of one request at a level: at most
// widestShare of the level's nominal seats, and few enough that the requests of one
// hand of queues fit into the level.
func widest(l limits, q *queueing) int {
	most := int(math.Ceil(float64(l.nominal) * widestShare))
	if q != nil {
		most = min(most, l.nominal/q.hand)
	}
	return min(max(most, 1), widestOfAll)
}

// SeatsOfObjects returns how many seats a request asks for that processes a number
// of objects.
func SeatsOfObjects(objects int) int { return (objects + ObjectsPerSeat - 1) / ObjectsPerSeat }

// SeatsOfBytes returns how many seats a request asks for that processes objects with
// a total size in bytes.
func SeatsOfBytes(size int64) int {
	const most = widestOfAll * BytesPerSeat // no request takes more
	return int((min(size, most) + BytesPerSeat - 1) / BytesPerSeat)
}

// width returns how many seats a request takes that asks for a number of them.
func width(seats, widest int) int { return min(max(seats, 1), widest) }
