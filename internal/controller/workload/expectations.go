package workload

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// expectationTimeout is how long a controller waits for the watch to show
// what it wrote before it trusts the cache again.
const expectationTimeout = 5 * time.Minute

// Expectations remember, for each owner, the creations and deletions that
// were sent and that the informer has not shown yet. As long as there are
// any, the cache is known to be stale and the owner's controller must neither
// create nor delete, or it would do so twice.
//
// The order is: Expect..., then the request, then Observe... either by the
// informer's event or because the request failed.
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

func (e *Expectations) change(owner types.UID, f func(x *expectation)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.owners[owner]
	if x == nil {
		x = &expectation{deletions: sets.New[types.UID]()}
		e.owners[owner] = x
	}
	f(x)
	if x.creations <= 0 && len(x.deletions) == 0 {
		delete(e.owners, owner)
	}
}

// ExpectCreations announces n creations.
func (e *Expectations) ExpectCreations(owner types.UID, n int) {
	e.change(owner, func(x *expectation) { x.creations += n; x.since = time.Now() })
}

// ExpectDeletions announces the deletions of the given objects.
func (e *Expectations) ExpectDeletions(owner types.UID, objects ...types.UID) {
	e.change(owner, func(x *expectation) { x.deletions.Insert(objects...); x.since = time.Now() })
}

// ObserveCreation says that one announced creation was seen, or failed.
func (e *Expectations) ObserveCreation(owner types.UID) {
	e.change(owner, func(x *expectation) { x.creations-- })
}

// ObserveDeletion says that an object was seen to be deleted or being
// deleted, or that deleting it failed.
func (e *Expectations) ObserveDeletion(owner, object types.UID) {
	e.change(owner, func(x *expectation) { x.deletions.Delete(object) })
}

// Satisfied reports whether the cache shows all that was written.
func (e *Expectations) Satisfied(owner types.UID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.owners[owner]
	return x == nil || time.Since(x.since) > expectationTimeout
}

// Forget drops what is known about an owner that is gone.
func (e *Expectations) Forget(owner types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.owners, owner)
}
