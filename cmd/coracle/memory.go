package main

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"sync"

	"github.com/coracle-io/coracle/internal/memory"
)

// Shares of the memory that is there, each of which a process keeps to. They
// leave room for the container runtime, for pods and for etcd's pages.
const (
	controlShare = 0.6  // a control plane, or an API server alone
	nodeShare    = 0.15 // a node
)

// manageMemory makes the process keep to its share of the machine's memory, or
// of its control group's, and adapts the garbage collector to the load, until
// ctx ends and stop is called. GOMEMLIMIT and GOGC in the environment leave
// the choice to the user.
func manageMemory(ctx context.Context, share float64) (stop func()) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limitOf(memory.Available(os.DirFS("/")), share))
	}
	ctx, cancel := context.WithCancel(ctx)
	var pacing sync.WaitGroup
	pacing.Go(func() { paceGarbage(ctx) })
	return func() {
		cancel()
		pacing.Wait()
	}
}

// leastLimit is what a process needs to work at all, in bytes. Below it the
// collector would do nothing but collect.
const leastLimit = 64 << 20

// limitOf is a share of the memory that is available, in bytes.
func limitOf(available int64, share float64) int64 {
	if available == math.MaxInt64 {
		return math.MaxInt64
	}
	return max(int64(float64(available)*share), leastLimit)
}
