package registry

import (
	"context"
	"errors"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/apiserver/status"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// Page is one page of a list.
type Page struct {
	Entries []*watchcache.Entry
	Meta    metav1.ListMeta
}

// List returns the objects that the options select, or the first page of
// them.
func (q *Request) List(options *internalversion.ListOptions) (*Page, error) {
	s := watchcache.NewSelection(q.Endpoint.Resource, q.Namespace(), options.LabelSelector, options.FieldSelector)
	start, err := startOfList(q, options, s.Namespace())
	if err != nil {
		return nil, err
	}
	limit := int(options.Limit)
	if options.ResourceVersion == "0" && options.Continue == "" {
		limit = 0
	}
	p, err := collect(q.Context, &start.view, &s, start.after, limit)
	switch {
	case errors.Is(err, store.ErrCompacted) && options.Continue != "":
		return nil, errContinueExpired(start.after, s.Namespace())
	case errors.Is(err, store.ErrCompacted):
		return nil, apierrors.NewResourceExpired(listExpired)
	case err == nil && s.Err() != nil:
		return nil, s.Err()
	}
	return p, status.FromStore(err, "list", q.Endpoint.GroupResource(), q.Info.Name)
}

// collect returns one page of a view. Limit 0 means no limit.
func collect(ctx context.Context, v *view, s *watchcache.Selection, after watchcache.Position, limit int) (*Page, error) {
	p := &Page{Meta: metav1.ListMeta{ResourceVersion: strconv.FormatInt(v.revision(), 10)}}
	if v.snapshot != nil && s.Everything() && s.Namespace() == "" && limit == 0 {
		p.Entries = make([]*watchcache.Entry, 0, v.snapshot.Len())
	}
	more, about := false, limit
	if about > 0 {
		about++
	}
	if err := v.visit(ctx, s, after, about, func(e *watchcache.Entry) bool {
		if more = limit > 0 && len(p.Entries) == limit; !more {
			p.Entries = append(p.Entries, e)
		}
		return !more
	}); err != nil || !more {
		return p, err
	}
	last := p.Entries[len(p.Entries)-1].Position()
	token, err := encodeToken(last, s.Namespace(), v.revision())
	if err != nil {
		return nil, err
	}
	p.Meta.Continue = token
	if s.Everything() {
		remaining, err := v.count(ctx, s.Namespace(), last)
		if err != nil {
			return nil, err
		}
		p.Meta.RemainingItemCount = &remaining
	}
	return p, nil
}

// listStart is the state that a list reads and a position in it.
type listStart struct {
	view  view
	after watchcache.Position
}

// startOfList applies resourceVersion, resourceVersionMatch and continue:
//
//	rv      match          limit   state
//	""      -              -       everything written before the request
//	"0"     -              -       what is there
//	N       "" or NotOlder none    at least N
//	N       ""             given   exactly N
//	N       Exact          -       exactly N
func startOfList(q *Request, options *internalversion.ListOptions, namespace string) (listStart, error) {
	if options.Continue != "" {
		return continued(q, options, namespace)
	}
	revision, err := status.ParseRevision(options.ResourceVersion)
	if err != nil {
		return listStart{}, err
	}
	exact := options.ResourceVersionMatch == metav1.ResourceVersionMatchExact ||
		options.ResourceVersionMatch == "" && options.Limit > 0 && revision > 0
	if err := q.WaitFor(options.ResourceVersion, "list"); err != nil {
		return listStart{}, err
	}
	if !exact {
		return latest(q.Endpoint.Kind, watchcache.Position{}), nil
	}
	return asOf(q.Endpoint.Kind, revision, watchcache.Position{}), nil
}

// continued starts after the position of a continue token.
func continued(q *Request, options *internalversion.ListOptions, namespace string) (listStart, error) {
	after, revision, err := decodeToken(options.Continue, namespace)
	if err != nil {
		return listStart{}, err
	}
	if options.ResourceVersion != "" && options.ResourceVersion != "0" {
		return listStart{}, apierrors.NewBadRequest(errRevisionGiven)
	}
	if revision < 0 {
		if err := q.WaitFor("", "list"); err != nil {
			return listStart{}, err
		}
		return latest(q.Endpoint.Kind, after), nil
	}
	if err := waitForRevision(q.Context, q.Registry.Cache, revision); err != nil {
		return listStart{}, err
	}
	return asOf(q.Endpoint.Kind, revision, after), nil
}

// latest starts at the current state of the cache.
func latest(kind *watchcache.Kind, after watchcache.Position) listStart {
	snapshot := kind.Snapshot()
	return listStart{view{snapshot: &snapshot}, after}
}

// asOf starts at a past state: from the cache if it still has the revision,
// else from the store, which may have compacted it.
func asOf(kind *watchcache.Kind, revision int64, after watchcache.Position) listStart {
	if snapshot, ok := kind.SnapshotAt(revision); ok {
		return listStart{view{snapshot: &snapshot}, after}
	}
	return listStart{view{past: kind.HistoricalSnapshotAt(revision)}, after}
}
