// Package costtest measures what code costs, for tests that bound it. Unlike the
// time that passes, the cost does not depend on what else the machine does.
package costtest

import (
	"runtime"
	"syscall"
	"testing"
	"time"
)

// Cost is what a function has cost.
type Cost struct {
	// Bytes is the memory that the process allocated meanwhile.
	Bytes uint64
	// Processor is the processor time of the function's thread, without that of
	// other goroutines, or of the whole process.
	Processor time.Duration
}

// Of runs a function and returns its cost.
func Of(t testing.TB, run func()) Cost {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	bytes, processor := Allocated(), thread(t)
	run()
	return Cost{Bytes: Allocated() - bytes, Processor: thread(t) - processor}
}

// OfProcess runs a function and returns what the process has cost meanwhile, with all of
// its goroutines.
func OfProcess(t testing.TB, run func()) Cost {
	t.Helper()
	bytes, processor := Allocated(), used(t, syscall.RUSAGE_SELF)
	run()
	return Cost{Bytes: Allocated() - bytes, Processor: used(t, syscall.RUSAGE_SELF) - processor}
}

// Allocated returns the bytes that the process has allocated.
func Allocated() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.TotalAlloc
}

// thread returns the processor time that the calling thread has used.
func thread(t testing.TB) time.Duration {
	t.Helper()
	const ofThread = 1 // RUSAGE_THREAD
	return used(t, ofThread)
}

// used returns the processor time that the thread or the process has used.
func used(t testing.TB, who int) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(who, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
