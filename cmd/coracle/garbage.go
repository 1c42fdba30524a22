package main

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// collectEvery is how far apart collections of garbage should be under load.
	collectEvery = 4 * time.Second
	// maxGarbage bounds what may gather between two collections when it is
	// more than what lives: so many bytes, and this share of the machine's memory.
	maxGarbage      = 256 << 20
	maxGarbageShare = 16
	// startTime is how long the garbage of the start is not taken for a load.
	startTime = time.Second
	// calmTime without a collection means that the load is over.
	calmTime = 3 * collectEvery
	// usualGarbage is Go's default: as much garbage as there are live objects.
	usualGarbage = 100
)

// paceGarbage adapts the garbage collector to the load until ctx ends. A
// control plane at rest lives in some 30 MB, and Go would collect each time
// that as much was allocated: at thousands of writes a second, many times a
// second. Under load the heap may grow instead; at the start and at rest it is
// as small as ever, and what the load needed is given back. GOGC in the
// environment leaves the choice to the user.
func paceGarbage(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	calm := time.NewTimer(startTime)
	defer calm.Stop()
	select {
	case <-ctx.Done():
		return
	case <-calm.C:
	}
	defer debug.SetGCPercent(usualGarbage)
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(samples)
	last, allocated := time.Now(), samples[1].Value.Uint64()
	most := garbageFor(totalMemory())
	collected := make(chan struct{}, 1)
	afterCollection(collected)
	for {
		select {
		case <-ctx.Done():
			return
		case <-calm.C:
			debug.SetGCPercent(usualGarbage)
			debug.FreeOSMemory()
			continue
		case <-collected:
		}
		afterCollection(collected)
		metrics.Read(samples)
		now, total := time.Now(), samples[1].Value.Uint64()
		percent := garbagePercent(samples[0].Value.Uint64(), total-allocated, most, now.Sub(last))
		debug.SetGCPercent(percent)
		last, allocated = now, total
		if percent > usualGarbage {
			calm.Reset(calmTime)
		}
	}
}

// afterCollection sends on collected when the next collection has ended.
func afterCollection(collected chan<- struct{}) {
	type marker struct{ _ [16]byte }
	runtime.AddCleanup(new(marker), func(c chan<- struct{}) {
		select {
		case c <- struct{}{}:
		default:
		}
	}, collected)
}

// garbagePercent is how much garbage, in per cent of the live bytes, may
// gather until the next collection, given what was allocated since the last,
// and most bytes at the most.
func garbagePercent(live, allocated, most uint64, took time.Duration) int {
	if live == 0 || took <= 0 {
		return usualGarbage
	}
	expected := float64(allocated) * float64(collectEvery) / float64(took)
	return max(usualGarbage, int(min(expected, float64(most))*100/float64(live)))
}

// garbageFor is the most garbage that may gather on a machine with so much
// memory, in bytes.
func garbageFor(memory uint64) uint64 { return min(maxGarbage, memory/maxGarbageShare) }

// totalMemory is the machine's memory in bytes, and 0 if it cannot be told.
func totalMemory() uint64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0
	}
	return info.Totalram * uint64(info.Unit)
}
