package registry

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/coracle-io/coracle/internal/apiserver/status"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// errRetry reports that an object changed during a write.
var errRetry = errors.New("the object changed during the write")

// guaranteed calls try with the current object until there is no conflicting
// write:
//
//	cached object ─► try: rules, admission, write if unchanged
//	      ▲                                         │ errRetry, or any refusal
//	      └──── read from the store ◄───────────────┘ of a cached object
//
// try gets nil if there is no object. The cached object may be outdated, so a
// refusal that is based on it counts only if the store has the same revision.
func (e *Endpoint) guaranteed(ctx context.Context, verb, namespace, name string, try func(current *watchcache.Entry) error) error {
	current, cached := e.Kind.Get(namespace, name)
	if !cached {
		current = nil
	}
	for fresh := false; ; fresh = true {
		err := try(current)
		if err == nil || outcomeUnknown(err) || fresh && !errors.Is(err, errRetry) {
			return err
		}
		if ctxErr := ctx.Err(); ctxErr != nil {
			return ctxErr
		}
		latest, readErr := e.Kind.Read(ctx, namespace, name)
		switch {
		case errors.Is(readErr, store.ErrNotFound):
			latest = nil
		case readErr != nil:
			return status.FromStore(readErr, verb, e.GroupResource(), name)
		}
		if !errors.Is(err, errRetry) && sameEntry(latest, current) {
			return err
		}
		current = latest
	}
}

// writeError returns errRetry for a conflicting write, else the API error of a
// verb on an object.
func (e *Endpoint) writeError(err error, verb, name string) error {
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) {
		return errRetry
	}
	return status.FromStore(err, verb, e.GroupResource(), name)
}

// outcomeUnknown reports whether a failed write may have happened. Such a
// write must not be retried: the second attempt would see the result of the
// first and refuse it.
func outcomeUnknown(err error) bool { return apierrors.IsServerTimeout(err) }

func sameEntry(a, b *watchcache.Entry) bool {
	return a == b || a != nil && b != nil && a.Revision == b.Revision
}
