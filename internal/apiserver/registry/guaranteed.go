package registry

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/coracle-io/coracle/internal/apiserver/status"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// errRetry says that an object changed under a write.
var errRetry = errors.New("the object changed during the write")

// guaranteed tries a write to an object until it meets no other one:
//
//	cached object ─► try: rules, admission, write if unchanged
//	      ▲                                         │ errRetry, or any refusal
//	      └──── read from the store ◄───────────────┘ of a cached object
//
// try is given nil where there is no object. The cached object may be old: a
// refusal that is based on it counts only if the store holds the same.
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

// outcomeUnknown says that a write may have happened. It must not be tried
// again: the second attempt would meet the first one's result and refuse what
// was done.
func outcomeUnknown(err error) bool { return apierrors.IsServerTimeout(err) }

func sameEntry(a, b *watchcache.Entry) bool {
	return a == b || a != nil && b != nil && a.Revision == b.Revision
}
