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

// output answers a request in the form that was negotiated.
type output struct {
	*request
	codec.Output
}

// negotiate chooses the form of the answer.
func (q operation) negotiate() (output, error) {
	return q.negotiateFor(codec.Accepted{Protobuf: q.Endpoint.Codec.HasProtobuf(), Convert: true})
}

func (q operation) negotiateFor(a codec.Accepted) (output, error) {
	a.CBOR = q.server.CBOR
	o, ok := codec.Negotiate(q.http, a)
	if !ok {
		return output{}, status.NotAcceptable(codec.NotAcceptable(a.Stream, a.CBOR))
	}
	return output{q.request, o}, nil
}

// plain is the output for what is never converted, such as a Status.
func (o output) plain() output {
	o.Convert = schema.GroupVersionKind{}
	return o
}

// entry answers with one object.
func (o output) entry(code int, e *watchcache.Entry) error {
	if o.Convert.Kind == "Table" {
		return o.table(code, []*watchcache.Entry{e}, metav1.ListMeta{ResourceVersion: strconv.FormatInt(e.Revision, 10)})
	}
	body, err := o.entryBody(e, o.Media)
	if err != nil {
		return err
	}
	if o.audit.Responses() {
		o.audit.Response(o.entryBody(e, codec.JSON))
	}
	return o.dressed(code, body)
}

// dressed sends a body in the way that the client wants it written. It counts as
// a whole: what others share of it now, they may not share when it is read.
func (o output) dressed(code int, body []byte) error {
	body, err := o.Dress(body)
	if err != nil {
		return err
	}
	private := len(body)
	if o.held.Holds() { // it is counted already
		private = 0
	}
	if err := o.keepAnswer(code, len(body), private); err != nil {
		return err
	}
	o.send(code, o.Media, body)
	return nil
}

func (o output) entryBody(e *watchcache.Entry, media codec.Media) ([]byte, error) {
	switch o.Convert.Kind {
	case "":
		return o.Endpoint.Codec.Entry(e, media)
	case "PartialObjectMetadata":
		return o.Endpoint.Codec.Metadata(e, media, o.Convert.GroupVersion())
	}
	return nil, status.NotAcceptableMessage(fmt.Sprintf("you requested PartialObjectMetadataList, but the requested object is not a list (%T)", e.Object))
}

// table answers with the rows of objects.
func (o output) table(code int, entries []*watchcache.Entry, meta metav1.ListMeta) error {
	options, err := o.tableOptions()
	if err != nil {
		return err
	}
	body, err := o.Endpoint.Codec.Table(entries, meta, o.Media, options)
	if err != nil {
		return err
	}
	if o.audit.Responses() {
		o.audit.Response(o.Endpoint.Codec.Table(entries, meta, codec.JSON, options))
	}
	return o.dressed(code, body)
}

func (o output) tableOptions() (codec.TableOptions, error) {
	include := metav1.IncludeObjectPolicy(o.query().Get("includeObject"))
	switch include {
	case "", metav1.IncludeNone, metav1.IncludeMetadata, metav1.IncludeObject:
	default:
		return codec.TableOptions{}, apierrors.NewBadRequest(fmt.Sprintf(
			`Unable to convert to Table as requested: includeObject: Invalid value: %q: must be 'Metadata', 'Object', 'None', or empty`, include))
	}
	return codec.TableOptions{Version: o.Convert.GroupVersion(), IncludeObject: include, Now: o.Now}, nil
}

// object answers with an object that is not stored; its TypeMeta is set.
func (o output) object(code int, obj runtime.Object) error {
	body, err := codec.Encode(obj, o.Media)
	if err != nil {
		return err
	}
	o.audit.Answer(obj)
	return o.dressed(code, body)
}

// page answers with a part of a listing.
func (o output) page(p *registry.Page) error {
	if o.Info.Verb == "list" {
		if err := o.reserve(listNeed(o.Endpoint, p, o.Output)); err != nil {
			return err
		}
	}
	if o.Convert.Kind == "Table" {
		return o.table(http.StatusOK, p.Entries, p.Meta)
	}
	media := o.Media
	if media == codec.YAML {
		media = codec.JSON
	}
	l, err := o.pageList(p, media)
	if err != nil {
		return err
	}
	if o.audit.Responses() {
		if recorded, err := o.pageList(p, codec.JSON); err == nil {
			o.audit.Response(recorded.Bytes())
		}
	}
	if o.Plain() || o.Media == codec.Protobuf || o.Media == codec.CBOR {
		if err := o.keepAnswer(http.StatusOK, l.Size(), min(l.Size(), codec.ListBuffer)); err != nil {
			return err
		}
		o.sendList(l, o.Media)
		return nil
	}
	body, err := l.Bytes()
	if err != nil {
		return err
	}
	return o.dressed(http.StatusOK, body)
}

func (o output) pageList(p *registry.Page, media codec.Media) (*codec.List, error) {
	c := o.Endpoint.Codec
	switch o.Convert.Kind {
	case "":
		return c.List(p.Entries, p.Meta, media)
	case "PartialObjectMetadataList":
		return c.MetadataList(p.Entries, p.Meta, media, o.Convert.GroupVersion())
	}
	return nil, status.NotAcceptableMessage(fmt.Sprintf("you requested PartialObjectMetadata, but the requested object is a list (*%s.%s)", o.Endpoint.Version.Version, c.ListKind.Kind))
}
