package main

import (
	"context"
	"runtime/debug"
	"time"

	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/processes"
)

// settleAfter is how long after a process is ready its start is over.
const settleAfter = 3 * time.Second

// settle gives back what only the start needed: heap, and the pages of the
// program, most of which runs once. Pages that are needed again come
// back from the page cache.
func settle(ctx context.Context, ready <-chan struct{}) {
	select {
	case <-ctx.Done():
		return
	case <-ready:
	}
	timer := time.NewTimer(settleAfter)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return
	case <-timer.C:
	}
	debug.FreeOSMemory()
	if err := processes.ReleaseProgram(); err != nil {
		klog.FromContext(ctx).V(2).Info("Pages of the program stay mapped", "err", err)
	}
}
