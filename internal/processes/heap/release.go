package heap

import (
	"context"
	"runtime/debug"
	"time"

	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/processes"
)

// startupTime is how long after a process is ready its start counts as over.
const startupTime = 3 * time.Second

// ReleaseAfterStart releases memory that only the start needed: heap, and the
// pages of the program, most of which are used only at the start.
func ReleaseAfterStart(ctx context.Context, ready <-chan struct{}) {
	select {
	case <-ctx.Done():
		return
	case <-ready:
	}
	timer := time.NewTimer(startupTime)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return
	case <-timer.C:
	}
	releaseMemory(ctx)
}

// releaseMemory releases the heap that is free, and the pages of the program.
// Pages that are needed again are read from the page cache.
func releaseMemory(ctx context.Context) {
	debug.FreeOSMemory()
	if err := processes.ReleaseProgram(); err != nil {
		klog.FromContext(ctx).V(2).Info("Pages of the program stay mapped", "err", err)
	}
}
