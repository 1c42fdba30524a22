package mem_test

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coracle-io/coracle/internal/leaktest"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/mem"
	"github.com/coracle-io/coracle/internal/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

func TestStore(t *testing.T) {
	storetest.Run(t, func(testing.TB) store.Store { return mem.New() })
}

func TestTTLFollowsTheVirtualClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mem.New()
		if _, err := s.Create(t.Context(), "/registry/events/e", nil, time.Hour); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour - time.Nanosecond)
		if _, err := s.Get(t.Context(), "/registry/events/e"); err != nil {
			t.Errorf("before the TTL: %v", err)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if _, err := s.Get(t.Context(), "/registry/events/e"); err != store.ErrNotFound {
			t.Errorf("after the TTL: %v", err)
		}
	})
}
