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
	p := gcPacer{most: 256 * mb, last: start, rest: 60 * mb, kept: 30 * mb}
	if _, wait := p.collected(state{live: 30 * mb, allocated: 30 * mb, held: 92 * mb}, start.Add(2*time.Minute)); wait != 0 {
		t.Error("a collection at rest is a load")
	}
	if percent, wait := p.collected(state{live: 30 * mb, allocated: 90 * mb, held: 62 * mb}, start.Add(2*time.Minute+time.Second)); wait != idleTime || percent != 800 {
		t.Errorf("60 MB a second: %d %%, release after %v", percent, wait)
	}
	if _, wait := p.collected(state{live: 100 * mb, allocated: 100 * mb, held: 300 * mb}, start.Add(10*time.Minute)); wait != idleTime {
		t.Error("240 MB more than at rest are no load")
	}
	for n := 1; p.released(state{live: 30 * mb, held: 70 * mb}, start); n++ {
		if n > releaseCount {
			t.Fatal("memory is released forever")
		}
	}
	if _, wait := p.collected(state{live: 30 * mb, allocated: 130 * mb, held: 72 * mb}, start.Add(20*time.Minute)); wait != 0 {
		t.Error("what stays is a load forever")
	}
}

// Objects that expire after the releases that follow a load, such as etcd's
// index of deleted keys, get a release of their own, but no sooner than the pause
// after the last one.
func TestPaceExpired(t *testing.T) {
	start := time.Unix(0, 0)
	p := gcPacer{most: 256 * mb, last: start, releases: releaseCount}
	for p.released(state{live: 35 * mb, held: 125 * mb}, start.Add(5*time.Minute)) {
	}
	for _, c := range []struct {
		what string
		live uint64
		at   time.Duration
		want time.Duration
	}{
		{"a megabyte", 34 * mb, 2 * time.Minute, 0},
		{"9 MB within the pause", 26 * mb, 4 * time.Minute, time.Minute},
		{"9 MB after the pause", 26 * mb, 6 * time.Minute, idleTime},
	} {
		if _, wait := p.collected(state{live: c.live, held: 125 * mb}, start.Add(c.at)); wait != c.want {
			t.Errorf("%s: memory is released after %v, want %v", c.what, wait, c.want)
		}
	}
	if p.released(state{live: 26 * mb, held: 60 * mb}, start.Add(7*time.Minute)) {
		t.Error("memory is released again although nothing expired")
	}
	if _, wait := p.collected(state{live: 26 * mb, held: 64 * mb}, start.Add(8*time.Minute)); wait != 0 {
		t.Error("memory is released at rest")
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
