package store

import (
	"context"
	"errors"
	"time"

	"k8s.io/klog/v2"
)

// Compaction forgets history by itself: every interval it compacts what is
// older than one interval, so that every revision is kept for at least that
// long. Several of them on one store agree: each forgets only what is old.
func Compaction(ctx context.Context, s Store, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var old int64
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now, err := s.CurrentRevision(ctx)
		if err != nil {
			continue // the store is away; whoever needs it says so
		}
		if old > 0 {
			if err := s.Compact(ctx, old); err != nil && !errors.Is(err, ErrCompacted) && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Cannot compact the store, trying again", "revision", old, "after", interval)
			}
		}
		old = now
	}
}
