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

// workers records the order in which the requests of tenants get a slot.
type workers struct {
	queue *Queue
	all   sync.WaitGroup
	mu    sync.Mutex // guards order
	order []string
}

// start makes requests of a tenant, each of which holds a slot for a time.
func (c *workers) start(t *testing.T, tenant string, times int, took time.Duration) {
	for range times {
		c.all.Go(func() {
			slot, err := c.queue.Acquire(t.Context(), tenant)
			if err != nil {
				t.Error(err)
				return
			}
			defer slot.Release()
			c.mu.Lock()
			c.order = append(c.order, tenant)
			c.mu.Unlock()
			time.Sleep(took)
		})
	}
}

// A tenant with many requests delays another by at most one of them.
func TestTenantsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &workers{queue: NewQueue(1, 1, 0)}
		c.start(t, "greedy", 50, time.Second)
		synctest.Wait()
		time.Sleep(10*time.Second + time.Millisecond)
		c.start(t, "modest", 3, time.Millisecond)
		c.all.Wait()
		if first, last := slices.Index(c.order, "modest"), len(c.order)-1-slices.Index(reversed(c.order), "modest"); first != 11 || last != 13 {
			t.Errorf("the modest tenant had slots %d to %d: %s", first, last, strings.Join(c.order, " "))
		}
		if len(c.queue.tenants) > 0 || c.queue.free != 1 {
			t.Errorf("%d tenants and %d free slots remain", len(c.queue.tenants), c.queue.free)
		}
	})
}

func reversed(order []string) []string {
	order = slices.Clone(order)
	slices.Reverse(order)
	return order
}

// A tenant whose requests take longer gets fewer slots.
func TestSlotsByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &workers{queue: NewQueue(1, 1, 0)}
		c.start(t, "slow", 10, 10*time.Millisecond)
		synctest.Wait()
		c.start(t, "quick", 100, time.Millisecond)
		c.all.Wait()
		for i := 25; i <= 100; i += 25 {
			if slow := len(slices.DeleteFunc(slices.Clone(c.order[:i]), func(who string) bool { return who == "quick" })); slow > i/9+1 {
				t.Errorf("%d of the first %d slots are the slow tenant's", slow, i)
			}
		}
	})
}

func TestSlotsOfATenantAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(4, 2, 0)
		for range 2 {
			slot, err := q.Acquire(t.Context(), "greedy")
			if err != nil {
				t.Fatal(err)
			}
			defer slot.Release()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := q.Acquire(ctx, "greedy"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a third slot for one tenant: %v", err)
		}
		slot, err := q.Acquire(t.Context(), "other")
		if err != nil {
			t.Fatal(err)
		}
		slot.Release()
	})
}

// A request that waits for something else yields its slot.
func TestYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(1, 1, 0)
		ctx, cancel := context.WithCancel(t.Context())
		slot, err := q.Acquire(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		ctx = WithSlot(ctx, slot)
		resume := Yield(ctx)
		time.Sleep(shortWait / 2)
		if err := resume(); err != nil || q.free != 0 {
			t.Errorf("resumed after a short wait: %v, %d free", err, q.free)
		}
		resume = Yield(ctx)
		other, err := q.Acquire(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, other.Release)
		begun := time.Now()
		if err := resume(); err != nil || time.Since(begun) != time.Second {
			t.Errorf("resumed after %v: %v", time.Since(begun), err)
		}
		if err := resume(); err != nil {
			t.Errorf("resumed twice: %v", err)
		}
		// A nested Yield neither ends the outer one nor waits for a slot.
		resume = Yield(ctx)
		inner := Yield(ctx)
		time.Sleep(2 * shortWait)
		if err := inner(); err != nil || q.free != 1 {
			t.Errorf("after the inner wait: %v, %d free", err, q.free)
		}
		if err := resume(); err != nil || q.free != 0 {
			t.Errorf("after the outer wait: %v, %d free", err, q.free)
		}
		// A request that has ended gets no slot.
		resume = Yield(ctx)
		time.Sleep(2 * shortWait)
		cancel()
		if err := resume(); !errors.Is(err, context.Canceled) || q.free != 1 {
			t.Errorf("resumed after the end: %v, %d free", err, q.free)
		}
		slot.Release()
		slot.Release()
		if err := slot.resume(t.Context()); err != nil || q.free != 1 {
			t.Errorf("resumed after the release: %v, %d free", err, q.free)
		}
		// resume returns the context's error without a slot, too.
		if err := Yield(context.WithoutCancel(ctx))(); err != nil {
			t.Errorf("with a released slot: %v", err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		if err := Yield(ctx)(); !errors.Is(err, context.Canceled) {
			t.Errorf("without a slot: %v", err)
		}
	})
}

// A slot whose lease is over delays no other request, and none is lost.
func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(1, 1, time.Second)
		slow, err := q.Acquire(t.Context(), "slow")
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		quick, err := q.Acquire(t.Context(), "quick")
		if err != nil || time.Since(begun) != time.Second {
			t.Fatalf("after %v: %v", time.Since(begun), err)
		}
		slow.Release()
		if q.free != 0 {
			t.Errorf("%d slots are free while one is held", q.free)
		}
		quick.Release()
		if q.free != 1 || len(q.tenants) != 0 {
			t.Errorf("%d slots are free, %d tenants are known", q.free, len(q.tenants))
		}
	})
}

// However requests acquire, yield, resume, expire and release, no slot is lost.
func TestNoSlotIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(3, 2, 3*time.Millisecond)
		var all sync.WaitGroup
		for i := range 300 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%50)*shortWait)
				defer cancel()
				slot, err := q.Acquire(ctx, fmt.Sprint(i%7))
				if err != nil {
					return
				}
				defer slot.Release()
				time.Sleep(time.Duration(i%5) * time.Millisecond)
				resume := Yield(WithSlot(ctx, slot))
				time.Sleep(time.Duration(i%3) * shortWait)
				_ = resume()
				time.Sleep(time.Duration(i%4) * time.Millisecond)
			})
		}
		all.Wait()
		if q.free != 3 || len(q.tenants) != 0 {
			t.Errorf("%d of 3 slots are free, %d tenants are known", q.free, len(q.tenants))
		}
	})
}
