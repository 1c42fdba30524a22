package compute

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// crew has tenants compute, and notes in which order they get to it.
type crew struct {
	queue *Queue
	all   sync.WaitGroup
	mu    sync.Mutex // guards order
	order []string
}

func (c *crew) works(t *testing.T, tenant string, times int, took time.Duration) {
	for range times {
		c.all.Go(func() {
			turn, err := c.queue.Enter(t.Context(), tenant)
			if err != nil {
				t.Error(err)
				return
			}
			defer turn.Leave()
			c.mu.Lock()
			c.order = append(c.order, tenant)
			c.mu.Unlock()
			time.Sleep(took)
		})
	}
}

// A tenant who asks for much delays another by one of his turns, and no more.
func TestTurnsOfTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crew{queue: NewQueue(1, 1, 0)}
		c.works(t, "greedy", 50, time.Second)
		synctest.Wait()
		time.Sleep(10*time.Second + time.Millisecond)
		c.works(t, "modest", 3, time.Millisecond)
		c.all.Wait()
		if first, last := slices.Index(c.order, "modest"), len(c.order)-1-slices.Index(reversed(c.order), "modest"); first != 11 || last != 13 {
			t.Errorf("the modest had turns %d to %d: %s", first, last, strings.Join(c.order, " "))
		}
		if len(c.queue.tenants) > 0 || c.queue.free != 1 {
			t.Errorf("%d tenants and %d free places are left", len(c.queue.tenants), c.queue.free)
		}
	})
}

func reversed(order []string) []string {
	order = slices.Clone(order)
	slices.Reverse(order)
	return order
}

// Whose turns last longer has fewer of them.
func TestTurnsByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crew{queue: NewQueue(1, 1, 0)}
		c.works(t, "slow", 10, 10*time.Millisecond)
		synctest.Wait()
		c.works(t, "quick", 100, time.Millisecond)
		c.all.Wait()
		for i := 25; i <= 100; i += 25 {
			if slow := len(slices.DeleteFunc(slices.Clone(c.order[:i]), func(who string) bool { return who == "quick" })); slow > i/9+1 {
				t.Errorf("%d of the first %d turns are slow ones", slow, i)
			}
		}
	})
}

// A tenant has no more than his part of the places.
func TestPlacesOfATenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(4, 2, 0)
		for range 2 {
			turn, err := q.Enter(t.Context(), "greedy")
			if err != nil {
				t.Fatal(err)
			}
			defer turn.Leave()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := q.Enter(ctx, "greedy"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a third place for one tenant: %v", err)
		}
		turn, err := q.Enter(t.Context(), "other")
		if err != nil {
			t.Fatal(err)
		}
		turn.Leave()
	})
}

// Who waits for something else leaves the place to others.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(1, 1, 0)
		ctx, cancel := context.WithCancel(t.Context())
		turn, err := q.Enter(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		ctx = With(ctx, turn)
		resume := Waiting(ctx)
		time.Sleep(instant / 2)
		if err := resume(); err != nil || q.free != 0 {
			t.Errorf("resumed after an instant: %v, %d free", err, q.free)
		}
		resume = Waiting(ctx)
		other, err := q.Enter(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, other.Leave)
		begun := time.Now()
		if err := resume(); err != nil || time.Since(begun) != time.Second {
			t.Errorf("resumed after %v: %v", time.Since(begun), err)
		}
		if err := resume(); err != nil {
			t.Errorf("resumed twice: %v", err)
		}
		// A wait within another neither ends that nor waits for a place itself.
		resume = Waiting(ctx)
		inner := Waiting(ctx)
		time.Sleep(2 * instant)
		if err := inner(); err != nil || q.free != 1 {
			t.Errorf("after the inner wait: %v, %d free", err, q.free)
		}
		if err := resume(); err != nil || q.free != 0 {
			t.Errorf("after the outer wait: %v, %d free", err, q.free)
		}
		// A request that is over gets no place any more.
		resume = Waiting(ctx)
		time.Sleep(2 * instant)
		cancel()
		if err := resume(); !errors.Is(err, context.Canceled) || q.free != 1 {
			t.Errorf("resumed after the end: %v, %d free", err, q.free)
		}
		turn.Leave()
		turn.Leave()
		if err := turn.Resume(t.Context()); err != nil || q.free != 1 {
			t.Errorf("resumed after leaving: %v, %d free", err, q.free)
		}
		// Requests without a turn learn of their end all the same.
		if err := Waiting(context.WithoutCancel(ctx))(); err != nil {
			t.Errorf("of a turn that left: %v", err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		if err := Waiting(ctx)(); !errors.Is(err, context.Canceled) {
			t.Errorf("without a turn: %v", err)
		}
	})
}

// A turn that lasts too long keeps nobody waiting, and loses no place.
func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(1, 1, time.Second)
		slow, err := q.Enter(t.Context(), "slow")
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		quick, err := q.Enter(t.Context(), "quick")
		if err != nil || time.Since(begun) != time.Second {
			t.Fatalf("after %v: %v", time.Since(begun), err)
		}
		slow.Leave()
		if q.free != 0 {
			t.Errorf("%d places are free while somebody has one", q.free)
		}
		quick.Leave()
		if q.free != 1 || len(q.tenants) != 0 {
			t.Errorf("%d places are free, %d tenants are known", q.free, len(q.tenants))
		}
	})
}

// However turns come, pause, resume, are given up and leave, no place is lost.
func TestNoPlaceIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(3, 2, 3*time.Millisecond)
		var all sync.WaitGroup
		for i := range 300 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%50)*instant)
				defer cancel()
				turn, err := q.Enter(ctx, fmt.Sprint(i%7))
				if err != nil {
					return
				}
				defer turn.Leave()
				time.Sleep(time.Duration(i%5) * time.Millisecond)
				resume := Waiting(With(ctx, turn))
				time.Sleep(time.Duration(i%3) * instant)
				_ = resume()
				time.Sleep(time.Duration(i%4) * time.Millisecond)
			})
		}
		all.Wait()
		if q.free != 3 || len(q.tenants) != 0 {
			t.Errorf("%d of 3 places are free, %d tenants are known", q.free, len(q.tenants))
		}
	})
}
