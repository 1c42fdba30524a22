package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/supervise"
)

// maintainInterval is the time between two checks of the database.
const maintainInterval = 30 * time.Second

// reclaimPause is the minimum time between two attempts to free space because of
// refused writes. etcd does not answer during an attempt.
const reclaimPause = 5 * time.Second

// sizes describes the database file.
type sizes struct {
	file, used, quota int64
	alarm             bool // the NOSPACE alarm is active: etcd refuses writes
	quiet             bool // there were at most quietWrites since the last check
}

// action is a step of maintenance.
type action int

const (
	nothing action = iota
	defragment
	reclaim // compact now, defragment, and lift the alarm
)

// Defragmentation rewrites the file. It blocks writes while it runs, and
// reduces the memory that the file is mapped to.
const (
	// worthDefragment is the free space from which the file is defragmented.
	worthDefragment = 16 << 20
	// quickDefragment is the size that is rewritten in a fraction of a second.
	quickDefragment = 128 << 20
	// quietWrites is the number of writes between two checks up to which the
	// store counts as idle.
	quietWrites = 10 * int64(maintainInterval/time.Second)
	// pagesRead is the number of revisions, written or compacted, after which
	// the pages of the file are released.
	pagesRead = 1000
)

// decide returns reclaim if etcd refuses writes because of the quota, and
// defragment if the file is mostly free space and clients will not notice a
// pause of writes. Otherwise etcd reuses the free space.
func decide(s sizes) action {
	free := s.file - s.used
	switch {
	case s.alarm:
		return reclaim
	case s.quiet && s.used < quickDefragment && free > worthDefragment && free > s.file/2:
		return defragment
	case s.file > s.quota/10*8 && free > s.file/10:
		return defragment
	}
	return nothing
}

// maintain keeps the database below its quota until ctx is done.
func (e *Embedded) maintain(ctx context.Context) {
	logger := klog.FromContext(ctx)
	ticker := time.NewTicker(maintainInterval)
	defer ticker.Stop()
	quotaHit, pause := e.quotaHit, time.NewTimer(0)
	defer pause.Stop()
	last, released := e.revisions(), revisions{}
	for {
		quiet, read := false, released
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
			quotaHit = e.quotaHit
			continue
		case <-ticker.C:
			now := e.revisions()
			quiet = now.current-last.current < quietWrites
			// A compaction deletes in the background. It counts at the next
			// tick, when it has read what it reads.
			read = revisions{now.current, last.compacted}
			last = now
		case <-quotaHit:
			quotaHit = nil
			pause.Reset(reclaimPause)
		}
		err := e.maintainOnce(ctx, logger, quiet)
		if err != nil && ctx.Err() == nil {
			logger.Error(err, "Maintenance of etcd's database failed, will try again", "after", maintainInterval)
		}
		if quiet && read.since(released) > pagesRead {
			released = read
			if err := releasePages(e.file); err != nil {
				logger.V(1).Info("Cannot release the pages of etcd's database", "error", err)
			}
		}
	}
}

// revisions are the current revision, which counts the writes, and the one up to
// which history is compacted.
type revisions struct{ current, compacted int64 }

func (e *Embedded) revisions() revisions {
	kv := e.server.Server.KV()
	return revisions{kv.Rev(), kv.FirstRev()}
}

// since returns how many revisions were written or compacted since before. Both
// read pages of the database.
func (r revisions) since(before revisions) int64 {
	return r.current - before.current + r.compacted - before.compacted
}

// refuses returns the reason why etcd refuses writes, or nil.
func (s sizes) refuses() error {
	if !s.alarm {
		return nil
	}
	return fmt.Errorf("the database is full and refuses writes (NOSPACE): %d MiB of at most %d MiB; delete objects that are not needed", s.file>>20, s.quota>>20)
}

func (e *Embedded) maintainOnce(ctx context.Context, logger klog.Logger, quiet bool) error {
	const condition = "NoSpace"
	before, err := e.sizes(ctx)
	if err != nil {
		return err
	}
	before.quiet = quiet
	what := decide(before)
	supervise.Report(ctx, condition, before.refuses())
	if what == nothing {
		return nil
	}
	if what == reclaim {
		logger.Error(nil, "etcd's database is full and refuses writes; compacting it", "bytes", before.file, "quota", before.quota)
		if err := e.compactNow(ctx); err != nil {
			return err
		}
	}
	if err := e.server.Server.Defragment(); err != nil {
		return fmt.Errorf("defragment: %w", err)
	}
	after, err := e.sizes(ctx)
	if err != nil {
		return err
	}
	logger.Info("Defragmented etcd's database", "bytesBefore", before.file, "bytesAfter", after.file)
	if what == reclaim && after.file < after.quota {
		if err := e.disarm(ctx); err != nil {
			return err
		}
		supervise.Report(ctx, condition, nil)
	}
	return nil
}

func (e *Embedded) sizes(ctx context.Context) (sizes, error) {
	backend := e.server.Server.Backend()
	s := sizes{file: backend.Size(), used: backend.SizeInUse(), quota: e.quota}
	alarms, err := e.client.AlarmList(ctx)
	if err != nil {
		return s, fmt.Errorf("list etcd's alarms: %w", err)
	}
	for _, a := range alarms.Alarms {
		if a.Alarm == pb.AlarmType_NOSPACE && a.MemberID == uint64(e.server.Server.MemberID()) {
			s.alarm = true
		}
	}
	return s, nil
}

// Size returns the size of this member's database file in bytes.
func (e *Embedded) Size(context.Context) (int64, error) { return e.server.Server.Backend().Size(), nil }

// compactNow compacts all history. Watches that are behind fail with
// store.ErrCompacted.
func (e *Embedded) compactNow(ctx context.Context) error {
	revision, err := e.CurrentRevision(ctx)
	if err != nil {
		return err
	}
	_, err = e.kv.Compact(ctx, &pb.CompactionRequest{Revision: revision, Physical: true})
	if errors.Is(rpctypes.Error(err), rpctypes.ErrCompacted) {
		return nil // nothing was written since the last compaction
	}
	if err != nil {
		return fmt.Errorf("compact at %d: %w", revision, err)
	}
	return nil
}

// disarm clears this member's NOSPACE alarm.
func (e *Embedded) disarm(ctx context.Context) error {
	alarm := clientv3.AlarmMember{MemberID: uint64(e.server.Server.MemberID()), Alarm: pb.AlarmType_NOSPACE}
	if _, err := e.client.AlarmDisarm(ctx, &alarm); err != nil {
		return fmt.Errorf("clear etcd's alarm: %w", err)
	}
	return nil
}
