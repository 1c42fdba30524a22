package heap

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
	// collectEvery is the intended time between garbage collections under load.
	collectEvery = 4 * time.Second
	// maxGarbage bounds the garbage between two collections when it exceeds the
	// live heap: in bytes, and as a share of the process's memory limit. The
	// few objects that survive a load lie scattered over the heap, so that more
	// garbage would save little work.
	maxGarbage      = 128 << 20
	maxGarbageShare = 16
	// startTime is how long after the start garbage does not count as load.
	startTime = time.Second
	// idleTime without a collection means that the load has ended.
	idleTime = 3 * collectEvery
	// usualGarbage is Go's default GOGC: as much garbage as live objects.
	usualGarbage = 100
	// loadThreshold is how much more memory than at rest, in bytes and besides
	// the usual garbage, counts as load.
	loadThreshold = 8 << 20
	// Objects that a load leaves behind expire gradually, without a
	// collection. After a load, memory is released this often, at this
	// interval or a longer one: a release collects all garbage, which must not
	// take more than this share of one core.
	releaseCount = 8
	releasePause = 15 * time.Second
	releaseShare = 1.0 / 400
	// expiredShare is the share of the live objects whose expiry is worth a
	// release at rest. Some expire long after these releases: the watch cache
	// keeps events for 5 minutes, and etcd's index keeps deleted keys for up
	// to 10. They lie scattered, so that a few megabytes of them keep many
	// times as much memory in use.
	expiredShare = 1.0 / 16
)

// gcPacer is the state of the garbage collector's control.
type gcPacer struct {
	most      uint64 // garbage, in bytes
	last      time.Time
	allocated uint64    // bytes until last
	rest      uint64    // bytes of memory that the process held after the last release
	kept      uint64    // bytes of objects that were live then
	releases  int       // remaining
	next      time.Time // of the next release at rest, at the earliest
}

// paceGarbage adapts the garbage collector to the load until ctx ends. A
// control plane at rest has some 30 MB of live objects. With Go's default it
// would collect each time that as much was allocated, which is many times a
// second under thousands of writes a second. Under load paceGarbage lets the
// heap grow instead, and releases the memory afterwards. If GOGC is in the
// environment, it leaves the pace as it is.
func paceGarbage(ctx context.Context) {
	own := os.Getenv("GOGC") == ""
	idleTimer := time.NewTimer(startTime)
	defer idleTimer.Stop()
	select {
	case <-ctx.Done():
		return
	case <-idleTimer.C:
	}
	if own {
		defer debug.SetGCPercent(usualGarbage)
	}
	now := readState()
	p := gcPacer{most: garbageFor(memory.ProcessLimit()), last: time.Now(), allocated: now.allocated, rest: now.held, kept: now.live}
	collected := make(chan struct{}, 1)
	afterCollection(collected)
	for {
		select {
		case <-ctx.Done():
			return
		case <-idleTimer.C:
			if own {
				debug.SetGCPercent(usualGarbage)
			}
			before := readState()
			releaseMemory(ctx)
			after := readState()
			pause := pauseAfter(after.collecting - before.collecting)
			if p.released(after, time.Now().Add(pause)) {
				idleTimer.Reset(pause)
			}
			continue
		case <-collected:
		}
		afterCollection(collected)
		percent, wait := p.collected(readState(), time.Now())
		if own {
			debug.SetGCPercent(percent)
		}
		if wait > 0 {
			idleTimer.Reset(wait)
		}
	}
}

// state is the state of the process's memory, in bytes.
type state struct {
	live       uint64        // after the last collection
	allocated  uint64        // ever
	held       uint64        // memory obtained from the system
	collecting time.Duration // CPU time of all collections
}

func readState() state {
	samples := [...]metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"},
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
		{Name: "/cpu/classes/gc/total:cpu-seconds"},
	}
	metrics.Read(samples[:])
	return state{
		live: samples[0].Value.Uint64(), allocated: samples[1].Value.Uint64(),
		held:       samples[2].Value.Uint64() - samples[3].Value.Uint64(),
		collecting: time.Duration(samples[4].Value.Float64() * float64(time.Second)),
	}
}

// collected returns, after a collection, the GC percentage until the next one,
// and how long to wait for another before memory is released: after a load, and
// when objects have expired since the last release. 0 is no release.
func (p *gcPacer) collected(h state, now time.Time) (percent int, wait time.Duration) {
	percent = garbagePercent(h.live, h.allocated-p.allocated, p.most, now.Sub(p.last))
	p.last, p.allocated = now, h.allocated
	if percent > usualGarbage || h.held > p.rest+h.live+loadThreshold {
		p.releases = releaseCount
		return percent, idleTime
	}
	if float64(h.live) < float64(p.kept)*(1-expiredShare) {
		return percent, max(idleTime, p.next.Sub(now))
	}
	return percent, 0
}

// released records the state after a release, and when the next may be. It
// reports whether to release then even if nothing expires.
func (p *gcPacer) released(h state, next time.Time) (again bool) {
	p.rest, p.kept, p.next = h.held, h.live, next
	p.releases--
	return p.releases > 0
}

// pauseAfter returns the time from a release, which took so much CPU time, to
// the next.
func pauseAfter(took time.Duration) time.Duration {
	return max(releasePause, time.Duration(float64(took)/releaseShare))
}

// afterCollection sends on collected once the next collection has ended.
func afterCollection(collected chan<- struct{}) {
	type marker struct{ _ [16]byte }
	runtime.AddCleanup(new(marker), func(c chan<- struct{}) {
		select {
		case c <- struct{}{}:
		default:
		}
	}, collected)
}

// garbagePercent returns the GC percentage for the next collection, given the
// bytes that are live, the bytes allocated since the last collection, the time
// since then, and the most garbage in bytes.
func garbagePercent(live, allocated, most uint64, took time.Duration) int {
	if live == 0 || took <= 0 {
		return usualGarbage
	}
	expected := float64(allocated) * float64(collectEvery) / float64(took)
	return max(usualGarbage, int(min(expected, float64(most))*100/float64(live)))
}

// garbageFor returns the most garbage, in bytes, for a process with a memory
// limit.
func garbageFor(limit int64) uint64 { return uint64(min(maxGarbage, limit/maxGarbageShare)) }
