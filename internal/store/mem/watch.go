package mem

import (
	"context"
	"sort"
	"strings"

	"github.com/coracle-io/coracle/internal/store"
)

// batchSize is the maximum number of log events that one batch covers.
const batchSize = 1000

// logIndex returns the index in the log of the first event after revision.
// Callers hold mu.
func (s *Store) logIndex(revision int64) int {
	return sort.Search(len(s.log), func(i int) bool { return s.log[i].Revision > revision })
}

// Watch implements store.Store.
func (s *Store) Watch(ctx context.Context, prefix string, after int64) <-chan store.Batch {
	batches := make(chan store.Batch)
	go func() {
		defer close(batches)
		for ctx.Err() == nil {
			batch, changed := s.next(prefix, after)
			if batch.Revision > after || batch.Err != nil {
				select {
				case batches <- batch:
				case <-ctx.Done():
				}
				if batch.Err != nil {
					return
				}
				after = batch.Revision
			}
			if changed != nil {
				select {
				case <-changed:
				case <-ctx.Done():
				}
			}
		}
	}()
	return batches
}

// next returns the events under prefix after a revision. If there are none, it
// returns the channel that the next write closes.
func (s *Store) next(prefix string, after int64) (store.Batch, <-chan struct{}) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if after < s.compacted {
		return store.Batch{Revision: after, Err: store.ErrCompacted}, nil
	}
	pending := s.log[s.logIndex(after):]
	changed := s.changed
	if len(pending) > batchSize {
		pending, changed = pending[:batchSize], nil
	}
	batch := store.Batch{Revision: after}
	for _, e := range pending {
		if strings.HasPrefix(e.Key, prefix) {
			batch.Events = append(batch.Events, e)
		}
		batch.Revision = e.Revision
	}
	return batch, changed
}
