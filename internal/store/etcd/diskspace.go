package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/coracle-io/coracle/internal/supervise"
)

// A write to a full disk is fatal for etcd. Writes are therefore refused before
// the disk is full. Reads and deletions continue, and writes resume when space
// is free again.
const (
	// maxReserved is the space to keep free: the next log file, which etcd allocates at
	// once, and the growth of the database until the next check.
	maxReserved = 96 << 20
	// reservedShare limits the reserved space on a small disk to size/reservedShare, but
	// not below minReserved.
	reservedShare = 10
	// minReserved is the next log file and some pages.
	minReserved = logFile + 8<<20
	logFile     = 64 * 1000 * 1000 // wal.SegmentSizeBytes
	// checkInterval is the time between checks during writes, idleCheckInterval without
	// writes.
	checkInterval     = 50 * time.Millisecond
	idleCheckInterval = 5 * time.Second
	// fullCheckInterval is the time between checks of a full disk.
	fullCheckInterval = time.Second
)

// disk returns the size of a file system and its free space, in bytes.
type disk func(dir string) (size, free uint64, err error)

func statDisk(dir string) (size, free uint64, err error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	return s.Blocks * uint64(s.Bsize), s.Bavail * uint64(s.Bsize), nil
}

// spaceCheck refuses writes while the disk is nearly full. One goroutine checks the
// disk, which may hang. Writers use its last result.
type spaceCheck struct {
	pb.KVClient
	dir    string
	disk   disk
	wanted chan struct{} // holds a token while a writer waits for a check
	last   atomic.Pointer[diskState]
}

// diskState is the result of a check.
type diskState struct {
	at   time.Time
	full error         // why writes are refused; nil if they are not
	next chan struct{} // closed when there is a newer diskState
}

// newSpaceCheck returns a spaceCheck that has checked the disk once. run repeats the
// check.
func newSpaceCheck(kv pb.KVClient, dir string, d disk) *spaceCheck {
	r := &spaceCheck{KVClient: kv, dir: dir, disk: d, wanted: make(chan struct{}, 1)}
	r.last.Store(&diskState{next: make(chan struct{})})
	_ = r.check()
	return r
}

// Txn implements pb.KVClient.
func (r *spaceCheck) Txn(ctx context.Context, txn *pb.TxnRequest, options ...grpc.CallOption) (*pb.TxnResponse, error) {
	if isPut(txn) {
		if err := r.refuses(ctx); err != nil {
			return nil, err
		}
	}
	return r.KVClient.Txn(ctx, txn, options...)
}

func isPut(txn *pb.TxnRequest) bool {
	for _, op := range txn.Success {
		if op.GetRequestPut() != nil {
			return true
		}
	}
	return false
}

// refuses returns the reason why a write is refused, or nil. It uses a result that
// is at most checkInterval old, or an older one if the disk takes longer than
// checkInterval to answer.
func (r *spaceCheck) refuses(ctx context.Context) error {
	f := r.last.Load()
	if time.Since(f.at) < checkInterval {
		return f.full
	}
	select {
	case r.wanted <- struct{}{}:
	default:
	}
	patience := time.NewTimer(checkInterval)
	defer patience.Stop()
	select {
	case <-f.next:
		return r.last.Load().full
	case <-patience.C:
		return f.full
	case <-ctx.Done():
		return ctx.Err()
	}
}

// check checks the disk and returns why writes are refused, or nil. Only one
// goroutine calls it.
func (r *spaceCheck) check() error {
	before := r.last.Load()
	found := &diskState{full: before.full, next: make(chan struct{})}
	size, free, err := r.disk(r.dir)
	if err == nil { // on an error the previous result stays
		found.full = r.evaluate(size, free, before.full != nil)
	}
	found.at = time.Now()
	r.last.Store(found)
	close(before.next)
	return found.full
}

// evaluate returns why writes are refused, or nil. Once refused, writes resume
// only when there is some more space than required.
func (r *spaceCheck) evaluate(size, free uint64, was bool) error {
	need := min(max(size/reservedShare, minReserved), maxReserved)
	if was {
		need += need / 8
	}
	if free >= need {
		return nil
	}
	return fmt.Errorf("%w: %d MiB are free in %s, and etcd needs %d MiB to accept writes: free some space there", syscall.ENOSPC, free>>20, r.dir, need>>20)
}

// report checks the disk when a writer requests it and at intervals, and reports the
// condition DiskFull, until ctx is done.
func (r *spaceCheck) report(ctx context.Context) {
	const condition = "DiskFull"
	shown := ""
	for {
		err := r.check()
		wait, message := idleCheckInterval, ""
		if err != nil {
			wait, message = fullCheckInterval, err.Error()
		}
		if message != shown {
			supervise.Report(ctx, condition, err)
			shown = message
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-r.wanted:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// addDiskFull adds ENOSPC to an error of etcd if the disk is full.
func addDiskFull(dir string, d disk, err error) error {
	if err == nil || errors.Is(err, syscall.ENOSPC) {
		return err
	}
	if _, free, diskErr := d(dir); diskErr != nil || free > 1<<20 {
		return err
	}
	return fmt.Errorf("%w: the disk of %s is full: %w", syscall.ENOSPC, dir, err)
}
