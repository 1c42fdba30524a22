package store

import (
	"context"
	"errors"
	"time"

	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/supervise"
)

// Compaction compacts the store until ctx is done. At each interval, it
// compacts the revisions that are older than one interval. So each revision is
// kept for at least that time, even if several servers compact the same store.
func Compaction(ctx context.Context, s Store, interval time.Duration) {
	var old int64
	supervise.Every(ctx, interval, func() {
		now, err := s.CurrentRevision(ctx)
		if err != nil {
			return // the users of the store report that it does not answer
		}
		if old > 0 {
			if err := s.Compact(ctx, old); err != nil && !errors.Is(err, ErrCompacted) && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Compacting the store failed, will try again", "revision", old, "after", interval)
			}
		}
		old = now
	})
}
