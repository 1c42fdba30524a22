package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
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

// room refuses writes while the disk is nearly full.
type room struct {
	pb.KVClient
	dir  string
	disk disk

	mu     sync.Mutex // guards the following
	looked time.Time
	full   error         // why writes are refused; nil if they are not
	turned chan struct{} // holds a token once full has changed
}

func newRoom(kv pb.KVClient, dir string, d disk) *room {
	return &room{KVClient: kv, dir: dir, disk: d, turned: make(chan struct{}, 1)}
}

// Txn implements pb.KVClient.
func (r *room) Txn(ctx context.Context, txn *pb.TxnRequest, options ...grpc.CallOption) (*pb.TxnResponse, error) {
	if puts(txn) {
		if err := r.look(lookEvery); err != nil {
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

// look returns why there is no room, by what was found at most age ago.
func (r *room) look(age time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.looked) >= age {
		r.looked = now
		size, free, err := r.disk(r.dir)
		if err == nil { // a disk that cannot be asked may well take what is written
			r.judge(size, free)
		}
	}
	return r.full
}

// judge decides whether writes are refused. Once they are, it takes somewhat
// more room to end that. The caller holds the mutex.
func (r *room) judge(size, free uint64) {
	was := r.full != nil
	need := min(max(size/roomShare, leastRoom), wantedRoom)
	if was {
		need += need / 8
	}
	r.full = nil
	if free < need {
		r.full = fmt.Errorf("%w: %d MiB are free in %s, and etcd needs %d MiB to take writes: make room there", syscall.ENOSPC, free>>20, r.dir, need>>20)
	}
	if was != (r.full != nil) {
		select {
		case r.turned <- struct{}{}:
		default:
		}
	}
}

// report shows, until ctx ends, whether there is room.
func (r *room) report(ctx context.Context) {
	const condition = "DiskFull"
	for {
		wait := idleLookEvery
		err := r.look(lookEvery)
		supervise.Report(ctx, condition, err)
		if err != nil {
			wait = fullLookEvery
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-r.turned:
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
