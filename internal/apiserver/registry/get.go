package registry

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/coracle-io/coracle/internal/apiserver/status"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// Get returns the object that the request names. With resourceVersion "" it
// is the current one, else it is at least as new as resourceVersion.
func (q *Request) Get(resourceVersion string) (*watchcache.Entry, error) {
	if err := q.WaitFor(resourceVersion, "get"); err != nil {
		return nil, err
	}
	e, ok := q.Endpoint.Kind.Get(q.Namespace(), q.Info.Name)
	if !ok {
		return nil, apierrors.NewNotFound(q.Endpoint.GroupResource(), q.Info.Name)
	}
	return e, nil
}

// futureWait is how long a read waits for a revision that the cache has not
// reached.
const futureWait = 3 * time.Second

// WaitFor waits until the cache is as new as a read with the given
// resourceVersion requires: "" means everything written before the call, "0"
// means any state, and anything else is a revision.
func (q *Request) WaitFor(resourceVersion, verb string) error {
	cache := q.Registry.Cache
	switch resourceVersion {
	case "0":
		return nil
	case "":
		_, err := cache.Fresh(q.Context)
		return status.FromStore(err, verb, q.Endpoint.GroupResource(), q.Info.Name)
	}
	revision, err := status.ParseRevision(resourceVersion)
	if err != nil {
		return err
	}
	return waitForRevision(q.Context, cache, revision)
}

// waitForRevision waits up to futureWait until the cache has a revision.
func waitForRevision(ctx context.Context, cache *watchcache.Cache, revision int64) error {
	if cache.Revision() >= revision {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, futureWait)
	defer cancel()
	if err := cache.WaitFor(ctx, revision); errors.Is(err, context.DeadlineExceeded) {
		return status.Future(revision, cache.Revision())
	} else if err != nil {
		return err
	}
	return nil
}
