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

// maintainEvery is how often the database is looked at.
const maintainEvery = 30 * time.Second

// reclaimPause is how long writes that are refused cannot start another
// attempt to make room, which stops etcd while it runs.
const reclaimPause = 5 * time.Second

// sizes describes the database file.
type sizes struct {
	file, used, quota int64
	alarm             bool // NOSPACE is raised: etcd refuses writes
	quiet             bool // hardly anything is being written
}

// action is what maintenance does about a state.
type action int

const (
	nothing action = iota
	defragment
	reclaim // compact now, defragment, and lift the alarm
)

// Rewriting the file stops writes for that time, and makes smaller what of it
// is mapped into memory.
const (
	// worthDefragment is how much free space makes it worth.
	worthDefragment = 16 << 20
	// quickDefragment is what can be rewritten in a fraction of a second.
	quickDefragment = 128 << 20
	// quietWrites is how many writes between two looks disturb nobody.
	quietWrites = 10 * int64(maintainEvery/time.Second)
	// pagesWrites is how many writes since the last time bring so many pages
	// into memory that they are released.
	pagesWrites = 1000
)

// decide defragments a file that is mostly free space while nobody minds, and
// reclaims what can be when the quota is hit. What is free is used again
// otherwise.
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

// maintain keeps the database below its quota until ctx ends.
func (e *Embedded) maintain(ctx context.Context) {
	logger := klog.FromContext(ctx)
	ticker := time.NewTicker(maintainEvery)
	defer ticker.Stop()
	poke, pause := e.poke, time.NewTimer(0)
	defer pause.Stop()
	last, released := e.revision(), int64(0)
	for {
		quiet := false
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
			poke = e.poke
			continue
		case <-ticker.C:
			now := e.revision()
			quiet = now-last < quietWrites
			last = now
		case <-poke:
			poke = nil
			pause.Reset(reclaimPause)
		}
		err := e.maintainOnce(ctx, logger, quiet)
		if err != nil && ctx.Err() == nil {
			logger.Error(err, "Cannot tidy up etcd's database, trying again", "after", maintainEvery)
		}
		if quiet && last-released > pagesWrites {
			released = last
			if err := releasePages(e.file); err != nil {
				logger.V(1).Info("Cannot release the pages of etcd's database", "error", err)
			}
		}
	}
}

// revision is how many writes there have been.
func (e *Embedded) revision() int64 { return e.server.Server.KV().Rev() }

// refuses says why etcd refuses writes, if it does.
func (s sizes) refuses() error {
	if !s.alarm {
		return nil
	}
	return fmt.Errorf("the database is full and refuses writes (NOSPACE): %d MiB of at most %d MiB; delete what is not needed", s.file>>20, s.quota>>20)
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

// Size is how many bytes the database file of this member takes.
func (e *Embedded) Size(context.Context) (int64, error) { return e.server.Server.Backend().Size(), nil }

// compactNow forgets all history. Watches that are behind have to begin anew.
func (e *Embedded) compactNow(ctx context.Context) error {
	revision, err := e.CurrentRevision(ctx)
	if err != nil {
		return err
	}
	_, err = e.kv.Compact(ctx, &pb.CompactionRequest{Revision: revision, Physical: true})
	if errors.Is(rpctypes.Error(err), rpctypes.ErrCompacted) {
		return nil // nothing was written since the last time
	}
	if err != nil {
		return fmt.Errorf("compact at %d: %w", revision, err)
	}
	return nil
}

// disarm lifts this member's NOSPACE alarm.
func (e *Embedded) disarm(ctx context.Context) error {
	alarm := clientv3.AlarmMember{MemberID: uint64(e.server.Server.MemberID()), Alarm: pb.AlarmType_NOSPACE}
	if _, err := e.client.AlarmDisarm(ctx, &alarm); err != nil {
		return fmt.Errorf("lift etcd's alarm: %w", err)
	}
	return nil
}
