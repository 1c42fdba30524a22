package apiserver

import (
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// list answers with the objects that the selectors match.
func (q *request) list() error {
	o, err := q.negotiate()
	if err != nil {
		return err
	}
	options, err := listOptions(q.query(), false, q.endpoint.resource, q.info.Name)
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
	return collect(start.snapshot, &s, start.after, limit)
}

// collect takes one page out of a snapshot; limit 0 is everything.
func collect(snapshot watchcache.Snapshot, s *selected, after watchcache.Position, limit int) (*page, error) {
	p := &page{meta: metav1.ListMeta{ResourceVersion: strconv.FormatInt(snapshot.Revision, 10)}}
	if s.everything() && s.namespace == "" && limit == 0 {
		p.entries = make([]*watchcache.Entry, 0, snapshot.Len())
	}
	more := int64(0)
	s.visit(snapshot, after, func(e *watchcache.Entry) bool {
		if limit > 0 && len(p.entries) == limit {
			more++
			return s.everything()
		}
		p.entries = append(p.entries, e)
		return true
	})
	if more == 0 {
		return p, nil
	}
	last := p.entries[len(p.entries)-1]
	token, err := encodeToken(watchcache.Position{Namespace: last.Namespace, Name: last.Name}, s.namespace, snapshot.Revision)
	if err != nil {
		return nil, err
	}
	p.meta.Continue = token
	if s.everything() {
		p.meta.RemainingItemCount = &more
	}
	return p, nil
}

// listStart is where a list begins: a state and a position in it.
type listStart struct {
	snapshot watchcache.Snapshot
	after    watchcache.Position
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
	kind := q.endpoint.kind
	if !exact {
		return listStart{snapshot: kind.Snapshot()}, nil
	}
	snapshot, ok := kind.SnapshotAt(revision)
	if !ok {
		return listStart{}, errExpired(listExpired)
	}
	return listStart{snapshot: snapshot}, nil
}

func (q *request) continued(options *internalversion.ListOptions, namespace string) (listStart, error) {
	after, revision, err := decodeToken(options.Continue, namespace)
	if err != nil {
		return listStart{}, err
	}
	if options.ResourceVersion != "" && options.ResourceVersion != "0" {
		return listStart{}, apierrors.NewBadRequest(errRevisionGiven)
	}
	kind := q.endpoint.kind
	if revision < 0 {
		if err := q.waitFor("", "list"); err != nil {
			return listStart{}, err
		}
		return listStart{kind.Snapshot(), after}, nil
	}
	if err := q.waitForRevision(revision); err != nil {
		return listStart{}, err
	}
	snapshot, ok := kind.SnapshotAt(revision)
	if !ok {
		return listStart{}, errContinueExpired(after, namespace)
	}
	return listStart{snapshot, after}, nil
}

// sendPage answers with a page in the form that the client wants.
func (q *request) sendPage(p *page, o codec.Output) error {
	c := q.endpoint.codec
	var l *codec.List
	var err error
	media := o.Media
	if media == codec.YAML {
		media = codec.JSON
	}
	switch o.Convert.Kind {
	case "":
		l, err = c.List(p.entries, p.meta, media)
	case "Table":
		return q.sendTable(http.StatusOK, p.entries, p.meta, o)
	case "PartialObjectMetadataList":
		l, err = c.MetadataList(p.entries, p.meta, media, o.Convert.GroupVersion())
	default:
		return errNotAcceptableMessage(fmt.Sprintf("you requested PartialObjectMetadata, but the requested object is a list (*%s.%s)", q.endpoint.version.Version, c.ListKind.Kind))
	}
	if err != nil {
		return err
	}
	if o.Media == codec.Protobuf || o.Media == codec.JSON && !o.Pretty {
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
