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

// etcd does not survive a write that its disk has no room for. So what is
// stored ends a while before the disk does: reads and deletions go on, and
// writes do again once there is room.
const (
	// wantedRoom is what is kept free: the next file of the log, which etcd
	// takes at once, and what its database may grow by until the disk is
	// looked at again.
	wantedRoom = 96 << 20
	// roomShare is how much of a small disk is kept free: one part in that many,
	// but never less than leastRoom.
	roomShare = 10
	// leastRoom is the next file of the log alone, and some pages.
	leastRoom = logFile + 8<<20
	logFile   = 64 * 1000 * 1000 // wal.SegmentSizeBytes
	// lookEvery is the time between two looks at the disk under load, and
	// idleLookEvery where nothing is written.
	lookEvery     = 50 * time.Millisecond
	idleLookEvery = 5 * time.Second
	// fullLookEvery is the time between two looks at a disk that is full.
	fullLookEvery = time.Second
)

// disk returns how many bytes a file system has, and how many are free.
type disk func(dir string) (size, free uint64, err error)

func statDisk(dir string) (size, free uint64, err error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	return s.Blocks * uint64(s.Bsize), s.Bavail * uint64(s.Bsize), nil
}

// room refuses writes while the disk is nearly full. One goroutine looks at the
// disk, which may hang; writers go by what it found last.
type room struct {
	pb.KVClient
	dir    string
	disk   disk
	wanted chan struct{} // holds a token while a writer waits for a look
	last   atomic.Pointer[finding]
}

// finding is what a look at the disk found.
type finding struct {
	at   time.Time
	full error         // why writes are refused; nil if they are not
	next chan struct{} // closed when there is a newer finding
}

// newRoom returns a room that has looked at the disk once. What is found later
// is found by report.
func newRoom(kv pb.KVClient, dir string, d disk) *room {
	r := &room{KVClient: kv, dir: dir, disk: d, wanted: make(chan struct{}, 1)}
	r.last.Store(&finding{next: make(chan struct{})})
	_ = r.look()
	return r
}

// Txn implements pb.KVClient.
func (r *room) Txn(ctx context.Context, txn *pb.TxnRequest, options ...grpc.CallOption) (*pb.TxnResponse, error) {
	if puts(txn) {
		if err := r.refuses(ctx); err != nil {
			return nil, err
		}
	}
	return r.KVClient.Txn(ctx, txn, options...)
}

func puts(txn *pb.TxnRequest) bool {
	for _, op := range txn.Success {
		if op.GetRequestPut() != nil {
			return true
		}
	}
	return false
}

// refuses returns why a write is refused, by what was found at most lookEvery
// ago, or before that if the disk takes longer than lookEvery to answer.
func (r *room) refuses(ctx context.Context) error {
	f := r.last.Load()
	if time.Since(f.at) < lookEvery {
		return f.full
	}
	select {
	case r.wanted <- struct{}{}:
	default:
	}
	patience := time.NewTimer(lookEvery)
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

// look asks the disk and returns why there is no room. Only one goroutine
// calls it.
func (r *room) look() error {
	before := r.last.Load()
	found := &finding{full: before.full, next: make(chan struct{})}
	size, free, err := r.disk(r.dir)
	if err == nil { // a disk that cannot be asked may well take what is written
		found.full = r.judge(size, free, before.full != nil)
	}
	found.at = time.Now()
	r.last.Store(found)
	close(before.next)
	return found.full
}

// judge returns why writes are refused, if they are. Once they are, it takes
// somewhat more room to end that.
func (r *room) judge(size, free uint64, was bool) error {
	need := min(max(size/roomShare, leastRoom), wantedRoom)
	if was {
		need += need / 8
	}
	if free >= need {
		return nil
	}
	return fmt.Errorf("%w: %d MiB are free in %s, and etcd needs %d MiB to take writes: make room there", syscall.ENOSPC, free>>20, r.dir, need>>20)
}

// report looks at the disk, whenever a writer wants it and else from time to
// time, and shows whether there is room, until ctx ends.
func (r *room) report(ctx context.Context) {
	const condition = "DiskFull"
	shown := ""
	for {
		err := r.look()
		wait, message := idleLookEvery, ""
		if err != nil {
			wait, message = fullLookEvery, err.Error()
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

// becauseFull adds to an error of an etcd that it may well come from a disk
// without room.
func becauseFull(dir string, d disk, err error) error {
	if err == nil || errors.Is(err, syscall.ENOSPC) {
		return err
	}
	if _, free, diskErr := d(dir); diskErr != nil || free > 1<<20 {
		return err
	}
	return fmt.Errorf("%w: the disk of %s is full: %w", syscall.ENOSPC, dir, err)
}
