package apiserver

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/httpserver"
	"github.com/coracle-io/coracle/internal/watchcache"
)

var contentTypes = [...][]string{{"application/json"}, {"application/yaml"}, {"application/vnd.kubernetes.protobuf"}, {"application/cbor"}}

// send answers with a whole body.
func (q *request) send(code int, media codec.Media, body []byte) {
	header := q.w.Header()
	header["Content-Type"] = contentTypes[media]
	q.warnings.write(header)
	q.code, q.size = code, len(body)
	if q.compresses(len(body)) {
		q.sendCompressed(code, len(body), func(w *gzip.Writer) error { _, err := w.Write(body); return err })
		return
	}
	header["Content-Length"] = []string{strconv.Itoa(len(body))}
	q.w.WriteHeader(code)
	if q.http.Method != http.MethodHead {
		q.answering(len(body), func(w io.Writer) { _, _ = w.Write(body) })
	}
}

// sendList answers with a list, written in few pieces.
func (q *request) sendList(l *codec.List, media codec.Media) {
	header := q.w.Header()
	header["Content-Type"] = contentTypes[media]
	q.warnings.write(header)
	q.code, q.size = http.StatusOK, l.Size()
	if q.compresses(l.Size()) {
		q.sendCompressed(http.StatusOK, l.Size(), func(w *gzip.Writer) error { _, err := l.WriteTo(w); return err })
		return
	}
	header["Content-Length"] = []string{strconv.Itoa(l.Size())}
	q.w.WriteHeader(http.StatusOK)
	if q.http.Method != http.MethodHead {
		q.answering(l.Size(), func(w io.Writer) { _, _ = l.WriteTo(w) })
	}
}

// compressionThreshold is the size from which compression pays.
const compressionThreshold = 128 << 10

// compresses says whether a body of this size is sent compressed: never to a
// client on the same machine.
func (q *request) compresses(size int) bool {
	if size < compressionThreshold || strings.HasPrefix(q.http.RemoteAddr, "127.") || strings.HasPrefix(q.http.RemoteAddr, "[::1]") || q.http.RemoteAddr == "" {
		return false
	}
	for _, encoding := range strings.Split(q.http.Header.Get("Accept-Encoding"), ",") {
		if encoding, _, _ = strings.Cut(encoding, ";"); strings.TrimSpace(encoding) == "gzip" {
			return true
		}
	}
	return false
}

var compressors = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	return w
}}

func (q *request) sendCompressed(code, size int, write func(*gzip.Writer) error) {
	header := q.w.Header()
	header.Set("Content-Encoding", "gzip")
	header.Add("Vary", "Accept-Encoding")
	q.w.WriteHeader(code)
	if q.http.Method == http.MethodHead {
		return
	}
	w := compressors.Get().(*gzip.Writer)
	defer compressors.Put(w)
	q.answering(size, func(to io.Writer) {
		w.Reset(to)
		if write(w) == nil {
			_ = w.Close()
		}
	})
}

// negotiate chooses the form of the answer.
func (q *request) negotiate() (codec.Output, error) {
	return q.negotiateFor(codec.Accepted{Protobuf: q.endpoint.codec.HasProtobuf(), Convert: true})
}

func (q *request) negotiateFor(a codec.Accepted) (codec.Output, error) {
	a.CBOR = q.server.CBOR
	o, ok := codec.Negotiate(q.http, a)
	if !ok {
		return o, errNotAcceptable(codec.NotAcceptable(a.Stream, a.CBOR))
	}
	return o, nil
}

// sendEntry answers with one object in the form that the client wants.
func (q *request) sendEntry(code int, e *watchcache.Entry, o codec.Output) error {
	if o.Convert.Kind == "Table" {
		return q.sendTable(code, []*watchcache.Entry{e}, metav1.ListMeta{ResourceVersion: strconv.FormatInt(e.Revision, 10)}, o)
	}
	body, err := q.entryBody(e, o.Media, o)
	if err != nil {
		return err
	}
	if q.audit.Responses() {
		q.audit.Response(q.entryBody(e, codec.JSON, o))
	}
	if body, err = o.Dress(body); err != nil {
		return err
	}
	q.send(code, o.Media, body)
	return nil
}

func (q *request) entryBody(e *watchcache.Entry, media codec.Media, o codec.Output) ([]byte, error) {
	switch o.Convert.Kind {
	case "":
		return q.endpoint.codec.Entry(e, media)
	case "PartialObjectMetadata":
		return q.endpoint.codec.Metadata(e, media, o.Convert.GroupVersion())
	}
	return nil, errNotAcceptableMessage(fmt.Sprintf("you requested PartialObjectMetadataList, but the requested object is not a list (%T)", e.Object))
}

func (q *request) sendTable(code int, entries []*watchcache.Entry, meta metav1.ListMeta, o codec.Output) error {
	options, err := q.tableOptions(o)
	if err != nil {
		return err
	}
	body, err := q.endpoint.codec.Table(entries, meta, o.Media, options)
	if err != nil {
		return err
	}
	if q.audit.Responses() {
		q.audit.Response(q.endpoint.codec.Table(entries, meta, codec.JSON, options))
	}
	if body, err = o.Dress(body); err != nil {
		return err
	}
	q.send(code, o.Media, body)
	return nil
}

func (q *request) tableOptions(o codec.Output) (codec.TableOptions, error) {
	include := metav1.IncludeObjectPolicy(q.query().Get("includeObject"))
	switch include {
	case "", metav1.IncludeNone, metav1.IncludeMetadata, metav1.IncludeObject:
	default:
		return codec.TableOptions{}, apierrors.NewBadRequest(fmt.Sprintf(
			`Unable to convert to Table as requested: includeObject: Invalid value: %q: must be 'Metadata', 'Object', 'None', or empty`, include))
	}
	return codec.TableOptions{Version: o.Convert.GroupVersion(), IncludeObject: include, Now: q.now}, nil
}

// sendObject answers with an object that is not stored; its TypeMeta is set.
func (q *request) sendObject(code int, obj runtime.Object, o codec.Output) error {
	body, err := codec.Encode(obj, o.Media)
	if err != nil {
		return err
	}
	if q.audit != nil {
		q.recordAnswer(obj)
	}
	if body, err = o.Dress(body); err != nil {
		return err
	}
	q.send(code, o.Media, body)
	return nil
}

// unreadPatience is how long the client of a log or another stream may read
// nothing of it: as long as kubelets let a stream be idle.
const unreadPatience = 4 * time.Hour

// handOver lets another handler answer. The handler sees the user and what
// the request is about in its context.
func (q *request) handOver(h http.Handler) {
	recorder := &recordingWriter{request: q, ResponseWriter: q.w, code: &q.code, size: &q.size}
	if isLongRunning(&q.info) {
		recorder.ResponseWriter = httpserver.LimitUnread(q.w, unreadPatience)
	}
	r := q.http.WithContext(q.admissionContext())
	r.Body = q.unreadBody()
	h.ServeHTTP(recorder, r)
	if q.code == 0 {
		q.code = http.StatusOK
	}
}

// recordingWriter notes the code and size of an answer.
type recordingWriter struct {
	http.ResponseWriter
	request    *request
	code, size *int
}

func (w *recordingWriter) WriteHeader(code int) {
	if *w.code == 0 && code >= http.StatusOK || code == http.StatusSwitchingProtocols {
		*w.code = code
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *recordingWriter) Write(data []byte) (n int, err error) {
	if *w.code == 0 {
		*w.code = http.StatusOK
	}
	*w.size += len(data)
	w.request.answering(*w.size, func(io.Writer) { n, err = w.ResponseWriter.Write(data) })
	return n, err
}

// Flush implements http.Flusher for handlers that ask for it.
func (w *recordingWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Unwrap is for http.ResponseController.
func (w *recordingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
