package host

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/coracle-io/coracle/internal/sharedfile"
)

const lockName = "lock"

// holderOf is a process as the holder of a cluster's lock.
func holderOf(cluster string, pid int) sharedfile.Holder {
	h := sharedfile.Holder{Cluster: cluster, PID: pid}
	h.PIDStart, _ = StartTime(pid) // one that is gone holds nothing any more
	return h
}

// LockData locks a data directory, which must exist. Whoever starts, changes or
// removes anything in it or anything of its cluster holds this lock.
func LockData(ctx context.Context, dir, cluster string, patience time.Duration) (*sharedfile.Lock, error) {
	return sharedfile.Acquire(ctx, filepath.Join(dir, lockName), holderOf(cluster, os.Getpid()), patience)
}

// HandTo notes that a process that inherited the lock of a data directory
// holds it for a cluster.
func HandTo(lock *sharedfile.Lock, cluster string, pid int) { lock.Tell(holderOf(cluster, pid)) }
