package l2announce

import (
	"context"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/coracle-io/coracle/internal/bubble"
)

// What is wanted is not computed for each change of objects that change all the time, but
// after the last one.
func TestChangesWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changed := make(chan struct{}, 1)
		var version, asked, seen atomic.Int64
		r := &responder{changed: changed, wanted: func() map[netip.Addr]int {
			asked.Add(1)
			seen.Store(version.Load())
			return nil
		}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.run(ctx)
		}()
		synctest.Wait()
		const changes, between = 1000, 10 * time.Millisecond
		for range changes {
			version.Add(1)
			signal(changed)
			synctest.Wait()
			time.Sleep(between)
		}
		synctest.Wait()
		if got, most := asked.Load(), int64(changeBurst+2+changes*between/changePeriod); got < changeBurst || got > most {
			t.Errorf("%d changes were followed %d times, want %d to %d", changes, got, changeBurst, most)
		}
		time.Sleep(2 * changePeriod)
		synctest.Wait()
		if seen.Load() != version.Load() {
			t.Errorf("version %d is followed, want %d", seen.Load(), version.Load())
		}
		time.Sleep(time.Minute)
		version.Add(1)
		signal(changed)
		synctest.Wait()
		if seen.Load() != version.Load() {
			t.Error("a change after a rest waits")
		}
		cancel()
		<-ended
	})
}
