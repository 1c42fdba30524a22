package leaktest

import (
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// TestLeftGoroutineIsFound checks that a goroutine that waits is found, and that
// one that ends later than goleak looks is not.
func TestLeftGoroutineIsFound(t *testing.T) {
	before := goleak.IgnoreCurrent()
	release := make(chan struct{})
	go waits(release)
	if err := find(0, before); err == nil || !strings.Contains(err.Error(), "leaktest.waits") {
		t.Errorf("a goroutine that waits: %v", err)
	}
	go func() {
		_ = goleak.Find(before) // until goleak has looked once
		close(release)
	}()
	Check(t, before)
}

func waits(release <-chan struct{}) { <-release }
