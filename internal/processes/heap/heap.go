// Package heap bounds the memory of a process of a cluster, adapts the garbage
// collector to its load, and gives memory back that is not needed any more. Its
// settings apply to the whole process: only a program calls it, no library.
package heap

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"sync"

	"github.com/coracle-io/coracle/internal/memory"
)

// Shares of the available memory that a process may use. The rest is for the
// container runtime, pods and the page cache of etcd.
const (
	ControlPlaneShare = 0.6  // a control plane, or an API server alone
	NodeShare         = 0.15 // a node
)

// Manage limits the process to a share of the memory of the machine, or
// of its control group, and adapts the garbage collector to the load. It does
// so until the caller calls stop. GOMEMLIMIT and GOGC in the environment take
// precedence.
func Manage(ctx context.Context, share float64) (stop func()) {
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

// minLimit is the least memory limit, in bytes. Below it a process would do
// little but collect garbage.
const minLimit = 64 << 20

// limitOf returns a share of the available memory, in bytes.
func limitOf(available int64, share float64) int64 {
	if available == math.MaxInt64 {
		return math.MaxInt64
	}
	return max(int64(float64(available)*share), minLimit)
}
