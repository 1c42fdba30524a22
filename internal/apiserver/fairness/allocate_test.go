package fairness

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

func TestAllocate(t *testing.T) {
	for _, test := range []struct {
		name   string
		seats  int
		claims []claim
		want   []int
	}{
		{"in proportion to the targets", 90, []claim{{10, 0, 90}, {20, 0, 90}}, []int{30, 60}},
		{"no demand: equally", 90, []claim{{0, 0, 90}, {0, 0, 90}}, []int{45, 45}},
		{"not below a lower bound", 90, []claim{{10, 10, 90}, {1000, 0, 90}}, []int{10, 80}},
		{"not above an upper bound", 90, []claim{{10, 0, 15}, {10, 0, 90}}, []int{15, 75}},
		{"upper bounds leave seats over", 90, []claim{{10, 0, 15}, {10, 0, 20}}, []int{15, 20}},
		{"lower bounds are too much", 90, []claim{{60, 60, 90}, {50, 50, 90}}, []int{60, 50}},
		{"no claims", 90, nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, _ := allocate(test.seats, test.claims)
			for i := range test.want {
				if got[i] != test.want[i] {
					t.Fatalf("%v, want %v", got, test.want)
				}
			}
		})
	}
}

// KEP-1040: an allocation is within the bounds, and no level gets a smaller
// fraction of its target than another unless a bound requires it.
func TestAllocationsAreFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		claims := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) claim {
			lower := rapid.IntRange(0, 50).Draw(t, "lower")
			return claim{float64(lower + rapid.IntRange(0, 100).Draw(t, "more")), lower, lower + rapid.IntRange(0, 200).Draw(t, "room")}
		}), 1, 8).Draw(t, "claims")
		seats := rapid.IntRange(0, 600).Draw(t, "seats")
		allocated, fraction := allocate(seats, claims)
		lowest, highest, total := 0, 0, 0
		for i, c := range claims {
			lowest, highest, total = lowest+c.lower, highest+c.upper, total+allocated[i]
			fair := fraction * max(c.target, leastTarget)
			switch {
			case allocated[i] < c.lower || allocated[i] > c.upper:
				t.Fatalf("%d seats for %+v", allocated[i], c)
			case allocated[i] == c.lower || allocated[i] == c.upper:
			case math.Abs(float64(allocated[i])-fair) > 0.501:
				t.Fatalf("%d seats for %+v, want %.2f", allocated[i], c, fair)
			}
		}
		if want := min(max(seats, lowest), highest); math.Abs(float64(total-want)) > float64(len(claims)) {
			t.Fatalf("%d seats in all, want %d", total, want)
		}
	})
}

func TestLimits(t *testing.T) {
	for _, test := range []struct {
		name  string
		level *flowcontrolv1.PriorityLevelConfiguration
		total float64
		want  limits
	}{
		{"shares are rounded up", limited("a", 1), 246, limits{3, 3, 3}},
		{"of a default number", limited("a", 0, func(l *flowcontrolv1.LimitedPriorityLevelConfiguration) {
			l.NominalConcurrencyShares = nil
		}), 60, limits{300, 300, 300}},
		{"some may be lent, and borrowed without limit", limited("a", 40, func(l *flowcontrolv1.LimitedPriorityLevelConfiguration) {
			l.LendablePercent, l.BorrowingLimitPercent = ptr.To[int32](25), nil
		}), 245, limits{98, 73, 600}},
		{"or to a limit", limited("a", 40, func(l *flowcontrolv1.LimitedPriorityLevelConfiguration) {
			l.LendablePercent, l.BorrowingLimitPercent = ptr.To[int32](100), ptr.To[int32](50)
		}), 245, limits{98, 0, 147}},
		{"no shares", limited("a", 0), 0, limits{0, 0, 0}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := sharesOf(test.level).limits(600, test.total); got != test.want {
				t.Errorf("%+v, want %+v", got, test.want)
			}
		})
	}
}

func TestWidth(t *testing.T) {
	for _, test := range []struct{ seats, widest, want int }{{0, 10, 1}, {1, 10, 1}, {2, 10, 2}, {50, 10, 10}, {50, 3, 3}} {
		if got := width(test.seats, test.widest); got != test.want {
			t.Errorf("%d seats of at most %d: %d, want %d", test.seats, test.widest, got, test.want)
		}
	}
	for objects, want := range map[int]int{0: 0, 1: 1, 100: 1, 101: 2, 500: 5, 5000: 50} {
		if got := SeatsOfObjects(objects); got != want {
			t.Errorf("%d objects: %d seats, want %d", objects, got, want)
		}
	}
	for size, want := range map[int64]int{0: 0, 1: 1, 100_000: 1, 100_001: 2, 950_000: 10, math.MaxInt64: 10} {
		if got := SeatsOfBytes(size); got != want {
			t.Errorf("%d bytes: %d seats, want %d", size, got, want)
		}
	}
	q := queueingOf(limited("a", 1, queues(64, 6, 50)))
	for nominal, want := range map[int]int{0: 1, 3: 1, 20: 3, 50: 8, 100: 10, 600: 10} {
		if got := widest(limits{nominal: nominal}, q); got != want {
			t.Errorf("%d nominal seats: %d at most, want %d", nominal, got, want)
		}
	}
}

func TestDemand(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	d := demand{began: start, changed: start}
	d.add(4, at(0))
	d.add(-4, at(5))
	d.add(1, at(4)) // a little late
	d.add(-1, at(5))
	if got := d.take(at(10)); got != (observed{highest: 4, average: 2, deviation: 2}) {
		t.Errorf("%+v", got)
	}
	if got := d.take(at(20)); got != (observed{}) {
		t.Errorf("%+v after nothing happened", got)
	}
	high := observed{average: 80, deviation: 20}.smoothed(0)
	if high != 100 {
		t.Errorf("a rising demand is %v, want 100 at once", high)
	}
	for range 30 { // five minutes
		high = observed{}.smoothed(high)
	}
	if high < 45 || high > 55 {
		t.Errorf("%v of 100 is left after five minutes, want about half", high)
	}
}

// A busy level gets what an idle one lends, returns it when that one is busy
// again, and never gets seats that are not lendable.
func TestBorrowing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		share := func(lendable int32) func(*flowcontrolv1.LimitedPriorityLevelConfiguration) {
			return func(l *flowcontrolv1.LimitedPriorityLevelConfiguration) {
				l.LendablePercent, l.BorrowingLimitPercent = ptr.To(lendable), nil
			}
		}
		c := newCluster(t, 105, toLevel("busy", "busy"), toLevel("idle", "idle"), limited("busy", 50, queues(16, 2, 100), share(0)), limited("idle", 50, queues(16, 2, 100), share(80)))
		seats := func(level string) int { return c.level(level).allowed() }
		adjust := func() {
			time.Sleep(period)
			c.divide(klog.Background())
		}
		load := map[string]int{"busy": 200}
		go c.load(30*time.Second, load, nil)
		synctest.Wait()
		adjust()
		if busy, idle := seats("busy"), seats("idle"); busy < 85 || idle < 10 || idle > 15 {
			t.Errorf("busy has %d seats and idle %d, want about 90 and the 10 that are not lent", busy, idle)
		}
		go c.load(20*time.Second, map[string]int{"idle": 200}, nil)
		synctest.Wait()
		adjust()
		adjust()
		if busy, idle := seats("busy"), seats("idle"); busy > 52 || idle < 48 {
			t.Errorf("busy has %d seats and idle %d, want each its own", busy, idle)
		}
		time.Sleep(10 * time.Second)
	})
}
