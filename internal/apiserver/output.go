package apiserver

import (
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/apiserver/status"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// output answers a request in the negotiated media type.
type output struct {
	codec.Output
	q *request
}

// negotiate chooses the media type and conversion of the answer.
func negotiate(q *request) (output, error) {
	return negotiateFor(q, codec.Accepted{Protobuf: q.call.Endpoint.Codec.HasProtobuf(), Convert: true})
}

func negotiateFor(q *request, a codec.Accepted) (output, error) {
	a.CBOR = q.server.cbor
	o, ok := codec.Negotiate(q.http, a)
	if !ok {
		return output{}, status.NotAcceptable(codec.NotAcceptable(a.Stream, a.CBOR))
	}
	return output{o, q}, nil
}

// plain returns an output without conversion, as for a Status.
func (o output) plain() output {
	o.Convert = schema.GroupVersionKind{}
	return o
}

// entry answers with one object.
func (o output) entry(code int, e *watchcache.Entry) error {
	if o.Convert.Kind == "Table" {
		return o.table(code, []*watchcache.Entry{e}, metav1.ListMeta{ResourceVersion: strconv.FormatInt(e.Revision, 10)}, false)
	}
	body, err := o.entryBody(e, o.Media)
	if err != nil {
		return err
	}
	if o.q.audit.Responses() {
		o.q.audit.Response(o.entryBody(e, codec.JSON))
	}
	return o.sendBody(code, body)
}

// sendBody sends a body, indented or as YAML if the client asked for it. The
// whole body counts for the client's tenant: other answers that share its memory
// may end before the client has read it.
func (o output) sendBody(code int, body []byte) error {
	body, err := o.Format(body)
	if err != nil {
		return err
	}
	private := len(body)
	if !o.q.held.working.Empty() { // already counted
		private = 0
	}
	if err := o.retain(code, len(body), private); err != nil {
		return err
	}
	o.q.response.send(code, o.Media, body)
	return nil
}

// retain counts the answer for its tenant. Only reads are refused: results of
// writes and errors are sent in any case.
func (o output) retain(code, size, private int) error {
	refusable := code < http.StatusBadRequest && !isMutating(o.q.http.Method)
	return o.q.held.retainAnswer(size, private, refusable)
}

func (o output) entryBody(e *watchcache.Entry, media codec.Media) ([]byte, error) {
	switch o.Convert.Kind {
	case "":
		return o.q.call.Endpoint.Codec.Entry(e, media)
	case "PartialObjectMetadata":
		return o.q.call.Endpoint.Codec.Metadata(e, media, o.Convert.GroupVersion())
	}
	return nil, status.NotAcceptableMessage(fmt.Sprintf("you requested PartialObjectMetadataList, but the requested object is not a list (%T)", e.Object))
}

// table answers with a Table of entries. list reports whether it shows a list
// and not a single object.
func (o output) table(code int, entries []*watchcache.Entry, meta metav1.ListMeta, list bool) error {
	options, err := o.tableOptions()
	if err != nil {
		return err
	}
	options.List = list
	body, err := o.q.call.Endpoint.Codec.Table(entries, meta, o.Media, options)
	if err != nil {
		return err
	}
	if o.q.audit.Responses() {
		o.q.audit.Response(o.q.call.Endpoint.Codec.Table(entries, meta, codec.JSON, options))
	}
	return o.sendBody(code, body)
}

func (o output) tableOptions() (codec.TableOptions, error) {
	include := metav1.IncludeObjectPolicy(o.q.query().Get("includeObject"))
	switch include {
	case "", metav1.IncludeNone, metav1.IncludeMetadata, metav1.IncludeObject:
	default:
		return codec.TableOptions{}, apierrors.NewBadRequest(fmt.Sprintf(
			`Unable to convert to Table as requested: includeObject: Invalid value: %q: must be 'Metadata', 'Object', 'None', or empty`, include))
	}
	return codec.TableOptions{Version: o.Convert.GroupVersion(), IncludeObject: include, Now: o.q.call.Now}, nil
}

// object answers with an object that is not stored. Its TypeMeta must be set.
func (o output) object(code int, obj runtime.Object) error {
	body, err := codec.Encode(obj, o.Media)
	if err != nil {
		return err
	}
	o.q.audit.Answer(obj)
	return o.sendBody(code, body)
}

// page answers with a page of a list.
func (o output) page(p *registry.Page) error {
	if o.q.call.Info.Verb == "list" {
		if err := o.q.held.reserve(listNeed(o.q.call.Endpoint, p, o.Output)); err != nil {
			return err
		}
	}
	if o.Convert.Kind == "Table" {
		return o.table(http.StatusOK, p.Entries, p.Meta, true)
	}
	media := o.Media
	if media == codec.YAML {
		media = codec.JSON
	}
	l, err := o.pageList(p, media)
	if err != nil {
		return err
	}
	if o.q.audit.Responses() {
		if recorded, err := o.pageList(p, codec.JSON); err == nil {
			o.q.audit.Response(recorded.Bytes())
		}
	}
	if o.Plain() || o.Media == codec.Protobuf || o.Media == codec.CBOR {
		if err := o.retain(http.StatusOK, l.Size(), min(l.Size(), codec.ListBuffer)); err != nil {
			return err
		}
		o.q.response.sendList(l, o.Media)
		return nil
	}
	body, err := l.Bytes()
	if err != nil {
		return err
	}
	return o.sendBody(http.StatusOK, body)
}

func (o output) pageList(p *registry.Page, media codec.Media) (*codec.List, error) {
	c := o.q.call.Endpoint.Codec
	switch o.Convert.Kind {
	case "":
		return c.List(p.Entries, p.Meta, media)
	case "PartialObjectMetadataList":
		return c.MetadataList(p.Entries, p.Meta, media, o.Convert.GroupVersion())
	}
	return nil, status.NotAcceptableMessage(fmt.Sprintf("you requested PartialObjectMetadata, but the requested object is a list (*%s.%s)", o.q.call.Endpoint.Version.Version, c.ListKind.Kind))
}
