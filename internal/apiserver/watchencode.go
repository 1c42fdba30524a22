package apiserver

import (
	"errors"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// unencodable is the error of an object that cannot be sent, such as a custom resource
// whose conversion fails.
type unencodable struct{ error }

// add buffers one event, and flushes the buffer at batchSize.
func (w *watcher) add(eventType string, e *watchcache.Entry) error {
	w.acquireBuffer()
	c, before := w.endpoint.Codec, len(w.frames)
	if w.output.Convert.Kind == "" && w.output.Media == codec.Protobuf {
		raw, err := c.Raw(e)
		if err != nil {
			return unencodable{err}
		}
		w.frames = c.AppendEnveloped(w.frames, eventType, raw)
	} else {
		body, err := w.encode(e)
		if err != nil {
			return unencodable{err}
		}
		w.frames = codec.AppendFrame(w.frames, w.output.Media, eventType, body)
	}
	return w.sendIfLarge(before)
}

// addDeleted buffers a DELETED event of an object that no longer matches: its
// last selected state, with the revision of the change. Watchers of the same
// media type share one encoding.
func (w *watcher) addDeleted(e *watchcache.Event) error {
	render := func() ([]byte, error) {
		last := e.Previous.Object
		if w.asksWebhook() { // for the object as it was, which others have asked for
			var err error
			if last, err = e.Previous.In(w.endpoint.Version); err != nil {
				return nil, err
			}
		}
		obj := last.DeepCopyObject().(resource.Object)
		obj.SetResourceVersion(strconv.FormatInt(e.Revision, 10))
		return w.encode(&watchcache.Entry{Object: obj, Namespace: e.Entry.Namespace, Name: e.Entry.Name, Revision: e.Revision})
	}
	var body []byte
	var err error
	if slot, ok := w.endpoint.Codec.LeftSlot(w.output); ok {
		body, err = e.Entry.Encoded(slot, render)
	} else {
		body, err = render()
	}
	if err != nil {
		return unencodable{err}
	}
	w.acquireBuffer()
	before := len(w.frames)
	w.frames = codec.AppendFrame(w.frames, w.output.Media, watchcache.Deleted.String(), body)
	return w.sendIfLarge(before)
}

// sendIfLarge counts the event that begins at offset before, and flushes the
// buffer at batchSize.
func (w *watcher) sendIfLarge(before int) error {
	w.count.Sent(len(w.frames) - before)
	if len(w.frames) < batchSize && !w.stream.single() {
		return nil
	}
	return w.flush()
}

// encode encodes an entry in the negotiated form.
func (w *watcher) encode(e *watchcache.Entry) ([]byte, error) {
	c := w.endpoint.Codec
	switch w.output.Convert.Kind {
	case "":
		return c.Entry(e, w.output.Media)
	case "Table":
		body, err := c.Table([]*watchcache.Entry{e}, metav1.ListMeta{ResourceVersion: e.Object.GetResourceVersion()}, w.output.Media, w.table)
		w.table.NoHeaders = true
		return body, err
	default:
		return c.Metadata(e, w.output.Media, w.output.Convert.GroupVersion())
	}
}

// frameBuffers pools the buffers of watchers. Idle watchers hold none.
var frameBuffers = sync.Pool{New: func() any { return new([]byte) }}

// acquireBuffer takes a buffer for frames from the pool, unless w has one.
func (w *watcher) acquireBuffer() {
	if w.pooled == nil {
		w.pooled = frameBuffers.Get().(*[]byte)
		w.frames = (*w.pooled)[:0]
	}
}

// flush sends the buffered frames and returns the buffer to the pool.
func (w *watcher) flush() error {
	if w.pooled == nil {
		return nil
	}
	err := w.transmit()
	if cap(w.frames) <= 2*batchSize {
		*w.pooled = w.frames[:0]
		frameBuffers.Put(w.pooled)
	}
	w.frames, w.pooled = nil, nil
	return err
}

// largeFrames is the size in bytes from which unread frames count for the tenant.
const largeFrames = 64 << 10

// errTooManyUnread ends a watch of a tenant with too many unread bytes.
var errTooManyUnread = errors.New("the tenant's watches have too much that is not read")

func (w *watcher) transmit() error {
	if len(w.frames) == 0 {
		return nil
	}
	if len(w.frames) >= largeFrames {
		kept, ok := w.keep(len(w.frames))
		if !ok {
			return errTooManyUnread
		}
		defer kept.Release()
	}
	return w.stream.send(w.frames)
}
