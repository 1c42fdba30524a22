package costtest

import (
	"runtime"
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
	all := OfProcess(t, func() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for begun := thread(t); thread(t) < begun+pause; {
				kept[0]++
			}
		}()
		<-done
	})
	if all.Processor < pause {
		t.Errorf("work of %v in another goroutine costs the process %+v", pause, all)
	}
}
