package apiserver

import (
	"context"
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/coracle-io/coracle/internal/watchcache"
)

// get answers with one object: the current one, or with resourceVersion one
// that is at least as new.
func (q *request) get() error {
	o, err := q.negotiate()
	if err != nil {
		return err
	}
	if q.query() != nil && len(q.parsed["export"]) > 0 && isTrue(q.parsed["export"][0]) {
		return apierrors.NewBadRequest("the export parameter, deprecated since v1.14, is no longer supported")
	}
	e, err := q.read(q.query().Get("resourceVersion"))
	if err != nil {
		return err
	}
	if q.sub != nil && q.sub.Scale != nil {
		return q.sendScale(http.StatusOK, e, o)
	}
	return q.sendEntry(http.StatusOK, e, o)
}

// namespace is the one of the object that the request names. For a Namespace
// the path names itself as the namespace of what is below it, which counts
// for authorization, but the object has none.
func (q *request) namespace() string {
	if !q.endpoint.resource.Namespaced {
		return ""
	}
	return q.info.Namespace
}

// read finds the object that the request names.
func (q *request) read(resourceVersion string) (*watchcache.Entry, error) {
	if err := q.waitFor(resourceVersion, "get"); err != nil {
		return nil, err
	}
	e, ok := q.endpoint.kind.Get(q.namespace(), q.info.Name)
	if !ok {
		return nil, apierrors.NewNotFound(q.endpoint.groupResource(), q.info.Name)
	}
	return e, nil
}

// futureWait is how long a read waits for a revision that is not known yet.
const futureWait = 3 * time.Second

// waitFor lets the cache catch up with what a read asks for: "" is everything
// that has been written, "0" whatever is there, else a revision.
func (q *request) waitFor(resourceVersion, verb string) error {
	cache := q.server.Cache
	switch resourceVersion {
	case "0":
		return nil
	case "":
		_, err := cache.Fresh(q.ctx)
		return storeError(err, verb, q.endpoint.groupResource(), q.info.Name)
	}
	revision, err := parseRevision(resourceVersion)
	if err != nil {
		return err
	}
	return q.waitForRevision(revision)
}

func (q *request) waitForRevision(revision int64) error {
	cache := q.server.Cache
	if cache.Revision() >= revision {
		return nil
	}
	ctx, cancel := context.WithTimeout(q.ctx, futureWait)
	defer cancel()
	if err := cache.WaitFor(ctx, revision); errors.Is(err, context.DeadlineExceeded) {
		return errFuture(revision, cache.Revision())
	} else if err != nil {
		return err
	}
	return nil
}
