package etcd

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/coracle-io/coracle/internal/store"
)

const (
	// batchSize bounds how many events gather while the reader is busy.
	batchSize = 1000
	// progressAfter is how long a watch waits for an event to bring it to a
	// revision before it asks etcd for its progress.
	progressAfter = time.Millisecond
	// progressAgain is how long it waits for that answer, which etcd omits
	// while the watch is catching up.
	progressAgain = 50 * time.Millisecond
)

// watches are those that somebody may wait for.
type watches struct {
	mu     sync.Mutex // guards active
	active map[*watch]struct{}
}

// watch is one etcd watch. known and expected tell it, and CurrentRevision,
// whether to ask for progress.
type watch struct {
	known    atomic.Int64
	expected atomic.Int64
	behind   chan struct{} // has room for one
}

func (w *watches) add(after int64) *watch {
	added := &watch{behind: make(chan struct{}, 1)}
	added.known.Store(after)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.active == nil {
		w.active = map[*watch]struct{}{}
	}
	w.active[added] = struct{}{}
	return added
}

func (w *watches) remove(gone *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.active, gone)
}

// expect tells the watches that revision exists.
func (w *watches) expect(revision int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for watch := range w.active {
		if revision <= watch.known.Load() {
			continue
		}
		watch.expected.Store(revision)
		select {
		case watch.behind <- struct{}{}:
		default:
		}
	}
}

// Watch implements store.Store. It goes on by itself when the connection to
// etcd was lost for a moment.
func (s *Store) Watch(ctx context.Context, prefix string, after int64) <-chan store.Batch {
	batches := make(chan store.Batch)
	go func() {
		defer close(batches)
		w := s.watches.add(after)
		defer s.watches.remove(w)
		if err := s.follow(ctx, w, prefix, after, batches); err != nil && ctx.Err() == nil {
			select {
			case batches <- store.Batch{Err: err}:
			case <-ctx.Done():
			}
		}
	}()
	return batches
}

func (s *Store) follow(ctx context.Context, w *watch, prefix string, after int64, batches chan<- store.Batch) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	responses := s.client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(after+1), clientv3.WithProgressNotify())
	ask := time.NewTimer(time.Hour)
	defer ask.Stop()
	batch := store.Batch{Revision: after}
	sent := after
	for {
		in, out := responses, batches
		if batch.Revision <= sent {
			out = nil
		}
		if len(batch.Events) >= batchSize {
			in = nil
		}
		select {
		case response, ok := <-in:
			if !ok {
				return fmt.Errorf("%w: watch ended", store.ErrUnavailable)
			}
			if response.CompactRevision != 0 {
				return store.ErrCompacted
			}
			if err := response.Err(); err != nil {
				return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
			}
			collect(&batch, response)
			w.known.Store(batch.Revision)
		case out <- batch:
			sent = batch.Revision
			batch = store.Batch{Revision: sent}
		case <-w.behind:
			ask.Reset(progressAfter)
		case <-ask.C:
			if w.known.Load() < w.expected.Load() {
				// An error means that the stream is down; it is asked again once it is back.
				_ = s.client.RequestProgress(ctx)
				ask.Reset(progressAgain)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// collect adds a response to a batch. The header of a response with events
// may be ahead of them, so that only the events count then.
func collect(batch *store.Batch, response clientv3.WatchResponse) {
	for _, e := range response.Events {
		event := store.Event{Key: string(e.Kv.Key), Revision: e.Kv.ModRevision}
		if e.Type == clientv3.EventTypeDelete {
			event.Deleted = true
		} else {
			event.Value = e.Kv.Value
			event.Created = e.IsCreate()
		}
		batch.Events = append(batch.Events, event)
		batch.Revision = event.Revision
	}
	if response.IsProgressNotify() {
		batch.Revision = max(batch.Revision, response.Header.Revision)
	}
}
