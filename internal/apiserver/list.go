package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// list answers with the objects that the selectors match.
func (q *request) list() error {
	o, err := q.negotiate()
	if err != nil {
		return err
	}
	options, err := listOptions(q.query(), false, q.endpoint, q.info.Name)
	if err != nil {
		return err
	}
	page, err := q.page(options)
	if err != nil {
		return err
	}
	return q.sendPage(page, o)
}

// page is a part of a listing.
type page struct {
	entries []*watchcache.Entry
	meta    metav1.ListMeta
}

// page finds what a list asks for.
func (q *request) page(options *internalversion.ListOptions) (*page, error) {
	s := newSelected(q.endpoint.resource, q.namespace(), options.LabelSelector, options.FieldSelector)
	start, err := q.listStart(options, s.namespace)
	if err != nil {
		return nil, err
	}
	limit := int(options.Limit)
	if options.ResourceVersion == "0" && options.Continue == "" {
		limit = 0
	}
	p, err := collect(q.ctx, &start.view, &s, start.after, limit)
	switch {
	case errors.Is(err, store.ErrCompacted) && options.Continue != "":
		return nil, errContinueExpired(start.after, s.namespace)
	case errors.Is(err, store.ErrCompacted):
		return nil, errExpired(listExpired)
	}
	return p, storeError(err, "list", q.endpoint.groupResource(), q.info.Name)
}

// collect takes one page out of a view; limit 0 is everything.
func collect(ctx context.Context, v *view, s *selected, after watchcache.Position, limit int) (*page, error) {
	p := &page{meta: metav1.ListMeta{ResourceVersion: strconv.FormatInt(v.revision(), 10)}}
	if v.snapshot != nil && s.everything() && s.namespace == "" && limit == 0 {
		p.entries = make([]*watchcache.Entry, 0, v.snapshot.Len())
	}
	more, about := false, limit
	if about > 0 {
		about++
	}
	if err := v.visit(ctx, s, after, about, func(e *watchcache.Entry) bool {
		if more = limit > 0 && len(p.entries) == limit; !more {
			p.entries = append(p.entries, e)
		}
		return !more
	}); err != nil || !more {
		return p, err
	}
	last := p.entries[len(p.entries)-1].Position()
	token, err := encodeToken(last, s.namespace, v.revision())
	if err != nil {
		return nil, err
	}
	p.meta.Continue = token
	if s.everything() {
		remaining, err := v.count(ctx, s.namespace, last)
		if err != nil {
			return nil, err
		}
		p.meta.RemainingItemCount = &remaining
	}
	return p, nil
}

// listStart is where a list begins: a state and a position in it.
type listStart struct {
	view  view
	after watchcache.Position
}

// listStart applies resourceVersion, resourceVersionMatch and continue:
//
//	rv      match          limit   state
//	""      -              -       everything written before the request
//	"0"     -              -       what is there
//	N       "" or NotOlder none    at least N
//	N       ""             given   exactly N
//	N       Exact          -       exactly N
func (q *request) listStart(options *internalversion.ListOptions, namespace string) (listStart, error) {
	if options.Continue != "" {
		return q.continued(options, namespace)
	}
	revision, err := parseRevision(options.ResourceVersion)
	if err != nil {
		return listStart{}, err
	}
	exact := options.ResourceVersionMatch == metav1.ResourceVersionMatchExact ||
		options.ResourceVersionMatch == "" && options.Limit > 0 && revision > 0
	if err := q.waitFor(options.ResourceVersion, "list"); err != nil {
		return listStart{}, err
	}
	if !exact {
		return q.latest(watchcache.Position{}), nil
	}
	return q.asOf(revision, watchcache.Position{}), nil
}

func (q *request) continued(options *internalversion.ListOptions, namespace string) (listStart, error) {
	after, revision, err := decodeToken(options.Continue, namespace)
	if err != nil {
		return listStart{}, err
	}
	if options.ResourceVersion != "" && options.ResourceVersion != "0" {
		return listStart{}, apierrors.NewBadRequest(errRevisionGiven)
	}
	if revision < 0 {
		if err := q.waitFor("", "list"); err != nil {
			return listStart{}, err
		}
		return q.latest(after), nil
	}
	if err := q.waitForRevision(revision); err != nil {
		return listStart{}, err
	}
	return q.asOf(revision, after), nil
}

// latest begins in what the cache knows now.
func (q *request) latest(after watchcache.Position) listStart {
	snapshot := q.endpoint.kind.Snapshot()
	return listStart{view{snapshot: &snapshot}, after}
}

// asOf begins in a past state: the cache's if it reaches back so far, else
// the store's, which may have been compacted.
func (q *request) asOf(revision int64, after watchcache.Position) listStart {
	kind := q.endpoint.kind
	if snapshot, ok := kind.SnapshotAt(revision); ok {
		return listStart{view{snapshot: &snapshot}, after}
	}
	return listStart{view{past: kind.PastAt(revision)}, after}
}

// sendPage answers with a page in the form that the client wants.
func (q *request) sendPage(p *page, o codec.Output) error {
	if q.info.Verb == "list" {
		if err := q.reserveList(p, o); err != nil {
			return err
		}
	}
	if o.Convert.Kind == "Table" {
		return q.sendTable(http.StatusOK, p.entries, p.meta, o)
	}
	media := o.Media
	if media == codec.YAML {
		media = codec.JSON
	}
	l, err := q.pageList(p, media, o)
	if err != nil {
		return err
	}
	if q.audit.Responses() {
		if recorded, err := q.pageList(p, codec.JSON, o); err == nil {
			q.audit.Response(recorded.Bytes())
		}
	}
	if o.Plain() || o.Media == codec.Protobuf || o.Media == codec.CBOR {
		q.sendList(l, o.Media)
		return nil
	}
	body, err := l.Bytes()
	if err != nil {
		return err
	}
	if body, err = o.Dress(body); err != nil {
		return err
	}
	q.send(http.StatusOK, o.Media, body)
	return nil
}

func (q *request) pageList(p *page, media codec.Media, o codec.Output) (*codec.List, error) {
	c := q.endpoint.codec
	switch o.Convert.Kind {
	case "":
		return c.List(p.entries, p.meta, media)
	case "PartialObjectMetadataList":
		return c.MetadataList(p.entries, p.meta, media, o.Convert.GroupVersion())
	}
	return nil, errNotAcceptableMessage(fmt.Sprintf("you requested PartialObjectMetadata, but the requested object is a list (*%s.%s)", q.endpoint.version.Version, c.ListKind.Kind))
}
