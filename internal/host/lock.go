package host

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/coracle-io/coracle/internal/sharedfile"
)

const lockName = "lock"

// holderOf returns a process as the holder of a cluster's lock.
func holderOf(cluster string, pid int) sharedfile.Holder {
	h := sharedfile.Holder{Cluster: cluster, PID: pid}
	h.PIDStart, _ = StartTime(pid) // a process that has ended holds nothing
	return h
}

// LockData locks a data directory, which must exist. Every process that starts,
// changes or removes the directory's content or its cluster holds this lock.
// LockData waits for it up to timeout and returns a sharedfile.HeldError then.
func LockData(ctx context.Context, dir, cluster string, timeout time.Duration) (*sharedfile.Lock, error) {
	return sharedfile.Acquire(ctx, filepath.Join(dir, lockName), holderOf(cluster, os.Getpid()), timeout)
}

// HandOver records that a process that inherited the lock of a data directory
// holds it for a cluster.
func HandOver(lock *sharedfile.Lock, cluster string, pid int) { lock.SetHolder(holderOf(cluster, pid)) }
