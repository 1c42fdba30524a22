package history

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// verb is the kind of an operation.
type verb int

const (
	create verb = iota
	update
	remove
	get
	list
)

// operation is a request with its answer. Each write has a unique value.
type operation struct {
	client      int
	verb        verb
	key         string
	expect      item // of update and remove: the item that they replace
	value       string
	code        int
	revision    int64           // of a write, or of the list
	found       map[string]item // the result of get and list
	start, stop time.Duration
}

// segment is a part of a watch between two lists. It must contain all events
// after its first revision.
type segment struct {
	after  int64
	events []watchEvent
}

// workload runs clients against servers and records their operations.
type workload struct {
	seed    uint64
	urls    []string
	begin   time.Time
	left    atomic.Int64 // remaining operations
	mu      sync.Mutex   // guards the following fields
	done    []operation
	watched []segment
}

// last is the key of the last write, which ends the watches.
const last = "the-last-one"

func key(n int) string { return fmt.Sprintf("key-%d", n) }

// write runs operations until none remains.
func (w *workload) write(client, keys int) {
	random := rand.New(rand.NewPCG(w.seed, uint64(client)))
	server := newAPI(w.urls[client%len(w.urls)])
	known := map[string]item{}
	for n := 0; w.left.Add(-1) >= 0; n++ {
		op := operation{client: client, key: key(random.IntN(keys)), value: fmt.Sprintf("%d-%d", client, n)}
		op.verb = choose(random, known[op.key])
		op.expect = known[op.key]
		op.start = time.Since(w.begin)
		w.perform(server, &op, random)
		op.stop = time.Since(w.begin)
		op.updateKnown(known)
		w.mu.Lock()
		w.done = append(w.done, op)
		w.mu.Unlock()
	}
}

// unknownRevision is the revision of a key that exists with an unknown value.
const unknownRevision = -1

// choose returns an operation that is likely to succeed for a key.
func choose(random *rand.Rand, known item) verb {
	n := random.IntN(10)
	switch {
	case n == 0:
		return list
	case n <= 2 || known.revision == unknownRevision:
		return get
	case known.revision == 0:
		return create
	case n <= 4:
		return remove
	}
	return update
}

func (w *workload) perform(server *api, op *operation, random *rand.Rand) {
	switch op.verb {
	case create:
		op.revision, op.code = server.create(op.key, op.value)
	case update:
		op.revision, op.code = server.update(op.key, op.value, op.expect.revision)
	case remove:
		op.code = server.delete(op.key, op.expect.revision)
	case get:
		var found item
		if found, op.code = server.get(op.key); op.code == http.StatusOK {
			op.found = map[string]item{op.key: found}
		}
	case list:
		op.found, op.revision, op.code = server.list([]int{0, 0, 3}[random.IntN(3)])
	}
}

// updateKnown updates the client's knowledge of the keys after an operation.
func (op *operation) updateKnown(known map[string]item) {
	switch {
	case op.verb == list && op.code == http.StatusOK:
		clear(known)
		for k, found := range op.found {
			known[k] = found
		}
	case op.code == http.StatusOK && op.verb == get:
		known[op.key] = op.found[op.key]
	case (op.code == http.StatusOK || op.code == http.StatusCreated) && op.verb != remove:
		known[op.key] = item{op.value, op.revision}
	case op.code == http.StatusConflict:
		known[op.key] = item{revision: unknownRevision}
	default:
		delete(known, op.key)
	}
}

// follow lists and watches until it sees the last key.
func (w *workload) follow(ctx context.Context, watcher int) error {
	server := newAPI(w.urls[watcher%len(w.urls)])
	for ctx.Err() == nil {
		items, revision, code := server.list(0)
		if code != http.StatusOK {
			pause(ctx)
			continue
		}
		s := segment{after: revision}
		_, finished := items[last]
		for expired := false; !expired && !finished && ctx.Err() == nil; {
			expired = server.watch(ctx, revision, func(e watchEvent) bool {
				s.events = append(s.events, e)
				revision = e.revision
				finished = e.key == last
				return !finished
			})
			if !expired && !finished {
				pause(ctx)
			}
		}
		w.mu.Lock()
		w.watched = append(w.watched, s)
		w.mu.Unlock()
		if finished {
			return nil
		}
	}
	return fmt.Errorf("watcher %d did not see the last write", watcher)
}

// pause delays the next request to a server that is down.
func pause(ctx context.Context) {
	select {
	case <-time.After(10 * time.Millisecond):
	case <-ctx.Done():
	}
}
