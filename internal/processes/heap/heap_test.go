package heap

import (
	"math"
	"runtime"
	"testing"
	"time"
)

const mb = 1 << 20

func TestGarbagePercent(t *testing.T) {
	for _, tt := range []struct {
		what            string
		live, allocated uint64
		took            time.Duration
		want            int
	}{
		{"at rest", 30 * mb, 30 * mb, time.Minute, 100},
		{"some load", 30 * mb, 30 * mb, time.Second, 400},
		{"heavy load on a small heap", 32 * mb, 32 * mb, 50 * time.Millisecond, 800},
		{"heavy load on a big heap", 1024 * mb, 1024 * mb, time.Second, 100},
		{"the first collection", 0, 4 * mb, time.Second, 100},
		{"no time has passed", 30 * mb, 30 * mb, 0, 100},
	} {
		if got := garbagePercent(tt.live, tt.allocated, 256*mb, tt.took); got != tt.want {
			t.Errorf("%s: %d %%, want %d %%", tt.what, got, tt.want)
		}
	}
}

func TestGarbageFor(t *testing.T) {
	for limit, want := range map[int64]uint64{512 * mb: 32 * mb, 1024 * mb: 64 * mb, 24576 * mb: 128 * mb, math.MaxInt64: 128 * mb} {
		if got := garbageFor(limit); got != want {
			t.Errorf("a limit of %d MB: %d MB, want %d MB", limit/mb, got/mb, want/mb)
		}
	}
}

// A collection is under load if the process allocates fast or takes more memory
// than at rest. After a load, memory is given back several times, and then no
// more.
func TestPace(t *testing.T) {
	start := time.Unix(0, 0)
	p := gcPacer{most: 256 * mb, last: start, rest: 60 * mb}
	if _, load := p.collected(state{live: 30 * mb, allocated: 30 * mb, held: 92 * mb}, start.Add(2*time.Minute)); load {
		t.Error("a collection at rest is a load")
	}
	if percent, load := p.collected(state{live: 30 * mb, allocated: 90 * mb, held: 62 * mb}, start.Add(2*time.Minute+time.Second)); !load || percent != 800 {
		t.Errorf("60 MB a second: %d %%, load %v", percent, load)
	}
	if _, load := p.collected(state{live: 100 * mb, allocated: 100 * mb, held: 300 * mb}, start.Add(10*time.Minute)); !load {
		t.Error("240 MB more than at rest are no load")
	}
	for n := 1; p.released(70 * mb); n++ {
		if n > releaseCount {
			t.Fatal("memory is released forever")
		}
	}
	if _, load := p.collected(state{live: 30 * mb, allocated: 130 * mb, held: 72 * mb}, start.Add(20*time.Minute)); load {
		t.Error("what stays is a load forever")
	}
}

// Releasing the memory of a large heap takes no larger share of a core than
// releasing the memory of a small heap.
func TestPauseAfter(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		0: 15 * time.Second, 30 * time.Millisecond: 15 * time.Second,
		300 * time.Millisecond: 2 * time.Minute, time.Second: 400 * time.Second,
	} {
		if got := pauseAfter(took); got != want {
			t.Errorf("after %v: %v, want %v", took, got, want)
		}
	}
	before := readState()
	runtime.GC()
	if after := readState(); after.collecting <= before.collecting {
		t.Errorf("a collection took no time: %v, then %v", before.collecting, after.collecting)
	}
}

func TestLimitOf(t *testing.T) {
	for _, tt := range []struct {
		available int64
		share     float64
		want      int64
	}{
		{1000 * mb, 0.75, 750 * mb},
		{32 * mb, 0.75, 64 * mb},
		{math.MaxInt64, 0.75, math.MaxInt64},
	} {
		if got := limitOf(tt.available, tt.share); got != tt.want {
			t.Errorf("%g of %d MB: %d MB, want %d MB", tt.share, tt.available/mb, got/mb, tt.want/mb)
		}
	}
}
