package workload

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// expectationTimeout is how long a controller waits for the informer to show
// its writes before it trusts the cache again.
const expectationTimeout = 5 * time.Minute

// Expectations track, for each owner, the creations and deletions that were
// requested but that the informer has not shown yet. While there are any, the
// cache is stale and the controller must neither create nor delete dependents
// of the owner; otherwise it would do so twice.
//
// A controller calls an Expect method before it sends a request. The Observe
// method is called when the informer shows the change or when the request has
// failed.
type Expectations struct {
	mu     sync.Mutex // guards owners
	owners map[types.UID]*expectation
}

type expectation struct {
	creations int
	deletions sets.Set[types.UID]
	since     time.Time
}

func newExpectations() *Expectations {
	return &Expectations{owners: map[types.UID]*expectation{}}
}

// expect changes the expectations of an owner. Earlier ones that have timed out are
// dropped, so that an event that was missed does not delay later changes.
func (e *Expectations) expect(owner types.UID, f func(x *expectation)) {
	e.change(owner, func(x *expectation) {
		if time.Since(x.since) > expectationTimeout {
			x.creations, x.deletions = 0, sets.New[types.UID]()
		}
		f(x)
		x.since = time.Now()
	})
}

func (e *Expectations) change(owner types.UID, f func(x *expectation)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.owners[owner]
	if x == nil {
		x = &expectation{deletions: sets.New[types.UID]()}
		e.owners[owner] = x
	}
	f(x)
	if x.creations == 0 && len(x.deletions) == 0 {
		delete(e.owners, owner)
	}
}

// ExpectCreations records n creations that are about to be requested.
func (e *Expectations) ExpectCreations(owner types.UID, n int) {
	e.expect(owner, func(x *expectation) { x.creations += n })
}

// ExpectDeletions records objects whose deletion is about to be requested.
func (e *Expectations) ExpectDeletions(owner types.UID, objects ...types.UID) {
	e.expect(owner, func(x *expectation) { x.deletions.Insert(objects...) })
}

// ObserveCreation records that one expected creation was observed or failed. A creation
// that was not expected, as after the answer to a request was lost, does not count for
// those that are expected later.
func (e *Expectations) ObserveCreation(owner types.UID) {
	e.change(owner, func(x *expectation) { x.creations = max(0, x.creations-1) })
}

// ObserveDeletion records that an object has been deleted or marked for
// deletion, or that the request to delete it failed.
func (e *Expectations) ObserveDeletion(owner, object types.UID) {
	e.change(owner, func(x *expectation) { x.deletions.Delete(object) })
}

// Satisfied reports whether the informer has shown all expected changes, or
// expectationTimeout has passed since the last were recorded.
func (e *Expectations) Satisfied(owner types.UID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.owners[owner]
	return x == nil || time.Since(x.since) > expectationTimeout
}

// expiry returns how long it takes until the expectations of an owner time out,
// or 0 if it has none. A nil Expectations has none.
func (e *Expectations) expiry(owner types.UID) time.Duration {
	if e == nil {
		return 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.owners[owner]
	if x == nil {
		return 0
	}
	return max(expectationTimeout-time.Since(x.since)+time.Nanosecond, 0)
}

// Deleting reports whether the deletion of an object was requested and the
// informer has not shown it.
func (e *Expectations) Deleting(owner, object types.UID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.owners[owner]
	return x != nil && x.deletions.Has(object) && time.Since(x.since) <= expectationTimeout
}

// Forget drops the expectations of a deleted owner.
func (e *Expectations) Forget(owner types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.owners, owner)
}
