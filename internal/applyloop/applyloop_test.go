package applyloop

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// kernel counts what a loop does with it. It is used in virtual time.
type kernel struct {
	applies int
	refused error // of Apply
	lost    bool
	unread  error // of Intact
	changed chan struct{}
}

func (k *kernel) apply() error {
	k.applies++
	if k.refused == nil {
		k.lost = false
	}
	return k.refused
}

func (k *kernel) intact() (bool, error) { return !k.lost, k.unread }

// expect waits, and compares the number of calls of Apply until then.
func (k *kernel) expect(t *testing.T, after time.Duration, applies int, why string) {
	t.Helper()
	time.Sleep(after)
	synctest.Wait()
	if k.applies != applies {
		t.Errorf("%s: applied %d times, want %d", why, k.applies, applies)
	}
}

// run runs a loop that checks every three seconds and tries again after one.
func run(t *testing.T, f func(t *testing.T, k *kernel)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k := &kernel{changed: make(chan struct{}, 1)}
		k.changed <- struct{}{}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		loop := Loop{Name: "rules", Changed: k.changed, Apply: k.apply, Intact: k.intact, CheckPeriod: 3 * time.Second, RetryPeriod: time.Second}
		go loop.Run(ctx)
		f(t, k)
	})
}

func TestAppliesChanges(t *testing.T) {
	run(t, func(t *testing.T, k *kernel) {
		k.expect(t, 0, 1, "at the start, with a change before it")
		k.changed <- struct{}{}
		k.expect(t, 0, 2, "after a change")
		k.expect(t, time.Minute, 2, "without a change")
	})
}

func TestTriesAgain(t *testing.T) {
	run(t, func(t *testing.T, k *kernel) {
		k.refused = errors.New("refused")
		k.changed <- struct{}{}
		k.expect(t, 0, 2, "refused")
		k.expect(t, time.Second, 3, "refused again")
		k.refused = nil
		k.expect(t, time.Second, 4, "accepted")
		k.expect(t, time.Minute, 4, "after success")
	})
}

func TestSuccessEndsTheRetry(t *testing.T) {
	run(t, func(t *testing.T, k *kernel) {
		k.refused = errors.New("refused")
		k.changed <- struct{}{}
		k.expect(t, 0, 2, "refused")
		k.refused = nil
		k.changed <- struct{}{}
		k.expect(t, 0, 3, "a change before the retry")
		k.expect(t, time.Minute, 3, "the retry is needless now")
	})
}

func TestChecks(t *testing.T) {
	run(t, func(t *testing.T, k *kernel) {
		k.expect(t, 0, 1, "at the start")
		k.lost, k.unread = true, errors.New("no answer")
		k.expect(t, 3*time.Second, 1, "the kernel's rules are not known")
		k.unread = nil
		k.expect(t, 3*time.Second, 2, "the kernel's rules are lost")
		k.expect(t, time.Minute, 2, "the kernel has the rules again")
	})
}

func TestChangesWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kernel{changed: make(chan struct{}, 1)}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		loop := Loop{Name: "rules", Changed: k.changed, Apply: k.apply, Intact: k.intact, CheckPeriod: 3 * time.Second, RetryPeriod: time.Second, MinPeriod: 10 * time.Second}
		go loop.Run(ctx)
		k.expect(t, 0, 1, "at the start")
		k.changed <- struct{}{}
		k.expect(t, 9*time.Second, 1, "after a change soon after the start")
		k.expect(t, time.Second, 2, "once the period is over")
		k.expect(t, time.Minute, 2, "without a change")
		k.changed <- struct{}{}
		k.expect(t, 0, 3, "after a change that need not wait")
		k.refused = errors.New("refused")
		k.changed <- struct{}{}
		k.expect(t, 10*time.Second, 4, "refused")
		k.expect(t, 10*time.Second, 5, "refused again")
	})
}

// Changes without end do not keep the loop busy. The last one is applied.
func TestChangesWithoutEnd(t *testing.T) {
	run(t, func(t *testing.T, k *kernel) {
		for range 930 {
			select {
			case k.changed <- struct{}{}:
			default:
			}
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		if k.applies < burst || k.applies > 1+burst+perSecond {
			t.Errorf("the changes of almost a second are applied %d times", k.applies)
		}
		k.expect(t, time.Second, k.applies+1, "after the last change")
		k.changed <- struct{}{}
		k.expect(t, 0, k.applies+1, "after a change that is alone")
	})
}
