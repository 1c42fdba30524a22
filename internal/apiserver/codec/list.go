package codec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"

	"github.com/coracle-io/coracle/internal/watchcache"
)

// flushSize is the number of bytes of a list that are buffered before a
// write, so that the cost of a write is small in comparison.
const flushSize = 256 << 10

// ListBuffer is the maximal memory in bytes for writing one list.
const ListBuffer = flushSize + 64<<10

var listBuffers = sync.Pool{New: func() any { b := make([]byte, 0, ListBuffer); return &b }}

// batchWriter combines small pieces to large writes.
type batchWriter struct {
	w   io.Writer
	buf []byte
	err error
}

func (g *batchWriter) add(piece []byte) {
	if len(g.buf)+len(piece) > flushSize {
		g.flush()
	}
	if len(piece) >= flushSize {
		g.write(piece)
		return
	}
	g.buf = append(g.buf, piece...)
}

func (g *batchWriter) addByte(b byte) { g.buf = append(g.buf, b) }

func (g *batchWriter) flush() {
	g.write(g.buf)
	g.buf = g.buf[:0]
}

func (g *batchWriter) write(data []byte) {
	if g.err == nil && len(data) > 0 {
		_, g.err = g.w.Write(data)
	}
}

// List is a list response. It refers to the encodings of entries only while
// it is written, so that hundreds of clients that list the same objects share
// them.
type List struct {
	media      Media
	start, end []byte
	entries    []*watchcache.Entry
	encode     encoder
	bare       bool // items lack the opening brace, which was cut off with the type
	size       int
}

// encoder returns the encoding of an entry as an item. Repeated calls return
// the same bytes and are cheap if the entry keeps them.
type encoder func(*watchcache.Entry) ([]byte, error)

// Size returns the length of the body in bytes.
func (l *List) Size() int { return l.size }

// WriteTo writes the body in few large writes.
func (l *List) WriteTo(w io.Writer) (int64, error) {
	pooled := listBuffers.Get().(*[]byte)
	g := batchWriter{w: w, buf: (*pooled)[:0]}
	g.add(l.start)
	var header [16]byte
	for i, e := range l.entries {
		item, err := l.encode(e)
		if err != nil && g.err == nil {
			g.err = err
		}
		if g.err != nil {
			break
		}
		switch {
		case l.media == Protobuf:
			g.add(appendHeader(header[:0], tagField2, len(item)))
		case i > 0 && l.media == JSON:
			g.addByte(',')
		}
		if l.bare {
			g.addByte('{')
		}
		g.add(item)
	}
	g.add(l.end)
	g.flush()
	if cap(g.buf) > 2*flushSize {
		return int64(l.size), g.err
	}
	*pooled = g.buf
	listBuffers.Put(pooled)
	return int64(l.size), g.err
}

// Bytes returns the whole body.
func (l *List) Bytes() ([]byte, error) {
	var b bytes.Buffer
	b.Grow(l.size)
	_, err := l.WriteTo(&b)
	return b.Bytes(), err
}

func appendHeader(dst []byte, tag byte, size int) []byte {
	dst = append(dst, tag)
	for ; size >= 0x80; size >>= 7 {
		dst = append(dst, byte(size)|0x80)
	}
	return append(dst, byte(size))
}

// List assembles a list from the encodings of entries.
func (v *Version) List(entries []*watchcache.Entry, meta metav1.ListMeta, media Media) (*List, error) {
	if err := watchcache.Convert(v.Version, entries); err != nil {
		return nil, err
	}
	switch media {
	case Protobuf:
		return newProtobufList(v.listEnvelope, entries, meta, v.Raw)
	case CBOR:
		return newCBORList(v.ListKind, entries, meta, v.itemCBOR)
	}
	if v.unstructured {
		return v.unstructuredList(entries, meta)
	}
	l, err := newJSONList(v.listTypeMeta, entries, meta, func(e *watchcache.Entry) ([]byte, error) {
		data, err := v.JSON(e)
		if err != nil {
			return nil, err
		}
		return v.withoutType(data)
	})
	if err != nil {
		return nil, err
	}
	l.bare = true
	l.size += len(entries)
	return l, nil
}

// withoutType removes the opening brace, kind and version of an object,
// because items of typed lists have no type.
func (v *Version) withoutType(data []byte) ([]byte, error) {
	rest, ok := bytes.CutPrefix(data, v.typeMeta)
	if !ok {
		return nil, fmt.Errorf("encoded %s does not begin with its kind", v.Kind.Kind)
	}
	return trimNewline(rest), nil
}

func trimNewline(data []byte) []byte {
	if n := len(data); n > 0 && data[n-1] == '\n' {
		return data[:n-1]
	}
	return data
}

func newJSONList(typeMeta []byte, entries []*watchcache.Entry, meta metav1.ListMeta, encode encoder) (*List, error) {
	metadata, err := json.Marshal(meta)
	if err != nil {
		return nil, err
	}
	start := append(append([]byte(nil), typeMeta...), metadata...)
	return jsonList(append(start, `,"items":[`...), []byte("]}\n"), entries, encode)
}

func jsonList(start, end []byte, entries []*watchcache.Entry, encode encoder) (*List, error) {
	l := &List{media: JSON, start: start, end: end, entries: entries, encode: encode}
	return l.measured(max(len(entries)-1, 0))
}

// measured encodes the items of a list, and returns it with its size. separators
// is the size of what is between the items.
func (l *List) measured(separators int) (*List, error) {
	l.size = len(l.start) + len(l.end) + separators
	for _, e := range l.entries {
		item, err := l.encode(e)
		if err != nil {
			return nil, err
		}
		l.size += len(item)
	}
	return l, nil
}

// unstructuredList returns a list of custom resources: its fields are sorted,
// and its items have types.
func (v *Version) unstructuredList(entries []*watchcache.Entry, meta metav1.ListMeta) (*List, error) {
	fields := map[string]any{"continue": meta.Continue, "resourceVersion": meta.ResourceVersion}
	if meta.RemainingItemCount != nil {
		fields["remainingItemCount"] = *meta.RemainingItemCount
	}
	apiVersion, err := json.Marshal(v.ListKind.GroupVersion().String())
	if err != nil {
		return nil, err
	}
	tail, err := json.Marshal(map[string]any{"kind": v.ListKind.Kind, "metadata": fields})
	if err != nil {
		return nil, err
	}
	start := append(append([]byte(`{"apiVersion":`), apiVersion...), `,"items":[`...)
	end := append(append([]byte(`],`), tail[1:]...), '\n')
	return jsonList(start, end, entries, func(e *watchcache.Entry) ([]byte, error) {
		data, err := v.JSON(e)
		return trimNewline(data), err
	})
}

func newProtobufList(envelope []byte, entries []*watchcache.Entry, meta metav1.ListMeta, encode encoder) (*List, error) {
	metadata, err := meta.Marshal()
	if err != nil {
		return nil, err
	}
	l := &List{media: Protobuf, entries: entries, encode: encode, end: []byte(envelopeTail)}
	head := appendBytes(nil, tagField1, metadata)
	raw := len(head)
	for _, e := range entries {
		item, err := encode(e)
		if err != nil {
			return nil, err
		}
		raw += 1 + sizeOf(len(item)) + len(item)
	}
	l.start = appendHeader(append([]byte(nil), envelope...), tagField2, raw)
	l.start = append(l.start, head...)
	l.size = len(l.start) - len(head) + raw + len(l.end)
	return l, nil
}

// MetadataList returns a list of PartialObjectMetadata in a version of
// meta.k8s.io.
func (v *Version) MetadataList(entries []*watchcache.Entry, meta metav1.ListMeta, media Media, version schema.GroupVersion) (*List, error) {
	kind := version.WithKind("PartialObjectMetadataList")
	switch media {
	case Protobuf:
		return newProtobufList(envelopeStart(kind), entries, meta, v.metadataRaw)
	case CBOR:
		return newCBORList(kind, entries, meta, func(e *watchcache.Entry) ([]byte, error) {
			return direct.Marshal(PartialMetadata(e.Object, version))
		})
	}
	return newJSONList(append(typeMetaJSON(kind), `"metadata":`...), entries, meta, func(e *watchcache.Entry) ([]byte, error) {
		data, err := v.metadataIn(e, version)
		return trimNewline(data), err
	})
}

// metadataIn encodes an entry's metadata. The encoding in v1 is kept in the
// entry.
func (v *Version) metadataIn(e *watchcache.Entry, version schema.GroupVersion) ([]byte, error) {
	if version == metav1.SchemeGroupVersion {
		return v.metadataJSON(e)
	}
	return marshalJSON(PartialMetadata(e.Object, version))
}

// Metadata returns the body of a response with an entry's metadata.
func (v *Version) Metadata(e *watchcache.Entry, media Media, version schema.GroupVersion) ([]byte, error) {
	switch media {
	case JSON, YAML:
		return v.metadataIn(e, version)
	case CBOR:
		return marshalCBOR(PartialMetadata(e.Object, version))
	}
	raw, err := v.metadataRaw(e)
	if err != nil {
		return nil, err
	}
	return wrap(envelopeStart(version.WithKind("PartialObjectMetadata")), raw), nil
}
