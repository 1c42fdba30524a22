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
	// batchSize is the number of buffered events above which follow stops to read
	// from etcd.
	batchSize = 1000
	// progressAfter is the time to wait for an event at an expected revision
	// before the watch requests its progress from etcd.
	progressAfter = time.Millisecond
	// progressAgain is the time to wait for the progress before it is requested
	// again. etcd does not send it while the watch is catching up.
	progressAgain = 50 * time.Millisecond
)

// watches holds the active watches, so that CurrentRevision can request their
// progress.
type watches struct {
	mu     sync.Mutex // guards active
	active map[*watch]struct{}
}

// watch is one etcd watch. It requests progress while known is below expected.
type watch struct {
	known    atomic.Int64  // the watch has delivered all events up to this revision
	expected atomic.Int64  // a revision that exists
	behind   chan struct{} // has capacity 1; receives when expected is raised above known
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

// expect sets the expected revision of the watches that do not know it.
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

// Watch implements store.Store. It continues by itself after the connection to
// etcd was interrupted.
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

// follow sends the events of an etcd watch to batches until ctx is done or the
// watch fails.
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
				// An error means that the stream is down. The next request follows after
				// progressAgain.
				_ = s.client.RequestProgress(ctx)
				ask.Reset(progressAgain)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// collect adds a response to a batch. In a response with events, the revision of
// the header may be ahead of the events, so collect uses the events' revision.
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
