package main

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/coracle-io/coracle/internal/memory"
)

const (
	// collectEvery is how far apart collections of garbage should be under load.
	collectEvery = 4 * time.Second
	// maxGarbage bounds what may gather between two collections when it is
	// more than what lives: so many bytes, and this share of the process's limit.
	// The few objects that stay of a load lie scattered over all of it, and
	// more would hardly save work.
	maxGarbage      = 128 << 20
	maxGarbageShare = 16
	// startTime is how long the garbage of the start is not taken for a load.
	startTime = time.Second
	// calmTime without a collection means that the load is over.
	calmTime = 3 * collectEvery
	// usualGarbage is Go's default: as much garbage as there are live objects.
	usualGarbage = 100
	// slack is how much more memory than at rest, besides the usual garbage, is
	// a load, in bytes.
	slack = 8 << 20
	// What a load leaves behind grows old and goes away bit by bit, without a
	// collection that would notice: memory is given back this often, this far apart.
	givings     = 8
	givingPause = 15 * time.Second
)

// pace is what the garbage collector is told, and why.
type pace struct {
	most      uint64 // garbage
	last      time.Time
	allocated uint64 // until last
	rest      uint64 // bytes of memory the process had after the last giving back
	givings   int    // still to be done
}

// paceGarbage adapts the garbage collector to the load until ctx ends. A
// control plane at rest lives in some 30 MB, and Go would collect each time
// that as much was allocated: at thousands of writes a second, many times a
// second. Under load the heap may grow instead; at the start and at rest it is
// as small as ever, and what the load needed is given back. GOGC in the
// environment leaves the choice of the pace to the user.
func paceGarbage(ctx context.Context) {
	own := os.Getenv("GOGC") == ""
	calm := time.NewTimer(startTime)
	defer calm.Stop()
	select {
	case <-ctx.Done():
		return
	case <-calm.C:
	}
	if own {
		defer debug.SetGCPercent(usualGarbage)
	}
	now := readHeap()
	p := pace{most: garbageFor(memory.ProcessLimit()), last: time.Now(), allocated: now.allocated, rest: now.held}
	collected := make(chan struct{}, 1)
	afterCollection(collected)
	for {
		select {
		case <-ctx.Done():
			return
		case <-calm.C:
			if own {
				debug.SetGCPercent(usualGarbage)
			}
			debug.FreeOSMemory()
			if p.gaveBack(readHeap().held) {
				calm.Reset(givingPause)
			}
			continue
		case <-collected:
		}
		afterCollection(collected)
		percent, load := p.collected(readHeap(), time.Now())
		if own {
			debug.SetGCPercent(percent)
		}
		if load {
			calm.Reset(calmTime)
		}
	}
}

// heap is the state of the process's memory, in bytes.
type heap struct {
	live      uint64 // after the last collection
	allocated uint64 // ever
	held      uint64 // of the system's
}

func readHeap() heap {
	samples := [...]metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"},
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
	}
	metrics.Read(samples[:])
	return heap{
		live: samples[0].Value.Uint64(), allocated: samples[1].Value.Uint64(),
		held: samples[2].Value.Uint64() - samples[3].Value.Uint64(),
	}
}

// collected tells, after a collection, how much garbage may gather until the
// next, and whether there is a load.
func (p *pace) collected(h heap, now time.Time) (percent int, load bool) {
	percent = garbagePercent(h.live, h.allocated-p.allocated, p.most, now.Sub(p.last))
	p.last, p.allocated = now, h.allocated
	load = percent > usualGarbage || h.held > p.rest+h.live+slack
	if load {
		p.givings = givings
	}
	return percent, load
}

// gaveBack notes how much memory is held after giving back, and tells whether
// to do it again.
func (p *pace) gaveBack(held uint64) (again bool) {
	p.rest = held
	p.givings--
	return p.givings > 0
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

// garbageFor is the most garbage that may gather in a process with a limit,
// in bytes.
func garbageFor(limit int64) uint64 { return uint64(min(maxGarbage, limit/maxGarbageShare)) }
