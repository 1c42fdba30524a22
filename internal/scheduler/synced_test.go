package scheduler

import (
	"sync/atomic"
	"testing"
)

// A scheduler says once that it knows what is in the API server.
func TestSynced(t *testing.T) {
	var calls atomic.Int32
	simulate(t, func(s *simulation) { s.synced = func() { calls.Add(1) } }, func(s *simulation) {
		if got := calls.Load(); got != 1 {
			s.t.Errorf("it said so %d times", got)
		}
	})
}
