package metricsserver

import (
	"testing"
	"time"
)

// A window goes on when the node's clock is set back, and a second answer within
// a second does not shorten it.
func TestWindows(t *testing.T) {
	at := func(seconds, cpu int64) point {
		return point{at: seconds * int64(time.Second), cpu: uint64(cpu), memory: 1}
	}
	w := window{}.then("c", at(1000, 10)).then("c", at(1060, 20))
	if w.length() != time.Minute {
		t.Fatalf("length %v", w.length())
	}
	soon := at(1060, 21)
	soon.at += int64(time.Millisecond)
	if again := w.then("c", soon); again != w {
		t.Errorf("a millisecond later: %+v", again)
	}
	if w = w.then("c", at(500, 30)); w.last.at != 500*int64(time.Second) || w.length() != 0 {
		t.Errorf("after the clock was set back: %+v", w)
	}
	if w = w.then("c", at(515, 40)); w.length() != 15*time.Second || w.last.cpu-w.previous.cpu != 10 {
		t.Errorf("15 seconds later: %+v", w)
	}
}
