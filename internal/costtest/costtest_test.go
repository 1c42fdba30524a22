package costtest

import (
	"testing"
	"time"
)

// TestCost checks that allocations and work count, and that waiting does not.
func TestCost(t *testing.T) {
	var kept []byte
	const size = 1 << 20
	if c := Of(t, func() { kept = make([]byte, size) }); c.Bytes < size {
		t.Errorf("a slice of %d bytes costs %+v", len(kept), c)
	}
	const pause = 50 * time.Millisecond
	if c := Of(t, func() { <-time.After(pause) }); c.Processor >= pause {
		t.Errorf("a pause costs %+v", c)
	}
	work := Of(t, func() {
		for begun := thread(t); thread(t) < begun+pause; {
			kept[0]++
		}
	})
	if work.Processor < pause {
		t.Errorf("work of %v costs %+v", pause, work)
	}
}
