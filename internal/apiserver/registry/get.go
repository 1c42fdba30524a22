package registry

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/coracle-io/coracle/internal/apiserver/status"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// Get finds the object that the request names: the current one for "", or one
// at least as new as resourceVersion.
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

// futureWait is how long a read waits for a revision that is not known yet.
const futureWait = 3 * time.Second

// WaitFor lets the cache catch up with what a read asks for: "" is everything
// that has been written, "0" whatever is there, else a revision.
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
	return q.waitForRevision(revision)
}

func (q *Request) waitForRevision(revision int64) error {
	cache := q.Registry.Cache
	if cache.Revision() >= revision {
		return nil
	}
	ctx, cancel := context.WithTimeout(q.Context, futureWait)
	defer cancel()
	if err := cache.WaitFor(ctx, revision); errors.Is(err, context.DeadlineExceeded) {
		return status.Future(revision, cache.Revision())
	} else if err != nil {
		return err
	}
	return nil
}
