package main

import (
	"testing"
	"time"
)

func TestGarbagePercent(t *testing.T) {
	const mb = 1 << 20
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
	const mb = 1 << 20
	for memory, want := range map[uint64]uint64{512 * mb: 32 * mb, 1024 * mb: 64 * mb, 24576 * mb: 256 * mb, 0: 0} {
		if got := garbageFor(memory); got != want {
			t.Errorf("%d MB of memory: %d MB, want %d MB", memory/mb, got/mb, want/mb)
		}
	}
}
