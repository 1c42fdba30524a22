// Package codec encodes and decodes the objects of requests and responses.
//
// An object is encoded at most once for each served version and media type.
// The bytes are kept in its cache entry, and all other responses are
// assembled from them:
//
//	entry ──► {"kind":"Pod","apiVersion":"v1","metadata":...}\n        get, create, update
//	              │ without the first two fields
//	              ├──► {"kind":"PodList",...,"items":[{"metadata":...},...]}\n
//	              └──► {"type":"ADDED","object":{"kind":"Pod",...}}\n   watch
//
// The same holds for protobuf: an envelope around a get, a field tag and
// length before each item of a list, a frame around each event of a watch.
package codec

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// Slots allocates the numbers of the slots in which entries keep encodings.
// Two versions, or two generations of a custom resource, never share one.
type Slots struct{ last atomic.Int64 }

func (s *Slots) take() int { return int(s.last.Add(1)) }

// Version encodes and decodes one served version of a resource.
type Version struct {
	Resource *resource.Resource
	Version  *resource.Version
	Kind     schema.GroupVersionKind
	ListKind schema.GroupVersionKind

	unstructured bool
	protobuf     bool
	typeMeta     []byte // {"kind":"Pod","apiVersion":"v1",
	listTypeMeta []byte // {"kind":"PodList","apiVersion":"v1","metadata":
	envelope     []byte // k8s\x00 and the type, up to the tag of the raw object
	listEnvelope []byte
	table        []byte // the columns of a Table as JSON

	slotJSON, slotProto         int
	slotMetaJSON, slotMetaProto int
	slotLeftJSON, slotLeftProto int
	slotCBOR, slotItemCBOR      int
}

// NewVersion returns the codec of a version of r.
func NewVersion(r *resource.Resource, v *resource.Version, slots *Slots) *Version {
	c := &Version{
		Resource: r, Version: v,
		Kind:     v.WithKind(r.Kind),
		ListKind: v.WithKind(cmp.Or(r.ListKind, r.Kind+"List")),
		slotJSON: slots.take(), slotProto: slots.take(), slotMetaJSON: slots.take(), slotMetaProto: slots.take(),
		slotLeftJSON: slots.take(), slotLeftProto: slots.take(), slotCBOR: slots.take(), slotItemCBOR: slots.take(),
	}
	sample := v.New()
	_, c.unstructured = sample.(*unstructured.Unstructured)
	_, c.protobuf = sample.(runtime.ProtobufMarshaller)
	c.typeMeta = typeMetaJSON(c.Kind)
	c.listTypeMeta = append(typeMetaJSON(c.ListKind), `"metadata":`...)
	c.envelope = envelopeStart(c.Kind)
	c.listEnvelope = envelopeStart(c.ListKind)
	c.table = tableColumns(r.Table.Columns)
	return c
}

// HasProtobuf reports whether the kind has a protobuf form. Custom resources
// have none.
func (v *Version) HasProtobuf() bool { return v.protobuf }

func typeMetaJSON(kind schema.GroupVersionKind) []byte {
	apiVersion, _ := json.Marshal(kind.GroupVersion().String())
	name, _ := json.Marshal(kind.Kind)
	return fmt.Appendf(nil, `{"kind":%s,"apiVersion":%s,`, name, apiVersion)
}

// Object returns an entry's object in the served version. It is shared.
func (v *Version) Object(e *watchcache.Entry) (resource.Object, error) {
	return e.In(v.Version)
}

// JSON returns an entry as a JSON object with a final newline.
func (v *Version) JSON(e *watchcache.Entry) ([]byte, error) {
	if data, converted, err := e.ConvertedJSON(v.Version); converted || err != nil {
		return data, err
	}
	return e.Encoded(v.slotJSON, func() ([]byte, error) {
		obj, err := v.Object(e)
		if err != nil {
			return nil, err
		}
		return marshalJSON(obj)
	})
}

// Raw returns an entry as a protobuf message without an envelope.
func (v *Version) Raw(e *watchcache.Entry) ([]byte, error) {
	return e.Encoded(v.slotProto, func() ([]byte, error) {
		obj, err := v.Object(e)
		if err != nil {
			return nil, err
		}
		return marshalProtobuf(obj)
	})
}

// metadataJSON returns an entry as a v1 PartialObjectMetadata with a final newline.
func (v *Version) metadataJSON(e *watchcache.Entry) ([]byte, error) {
	return e.Encoded(v.slotMetaJSON, func() ([]byte, error) {
		return marshalJSON(PartialMetadata(e.Object, metav1.SchemeGroupVersion))
	})
}

// metadataRaw returns an entry as a PartialObjectMetadata message.
func (v *Version) metadataRaw(e *watchcache.Entry) ([]byte, error) {
	return e.Encoded(v.slotMetaProto, func() ([]byte, error) {
		return marshalProtobuf(PartialMetadata(e.Object, metav1.SchemeGroupVersion))
	})
}

// LeftSlot returns the slot for the encoding of a DELETED event with the last
// state of an object before it left a watch's selection. ok is false for
// converted outputs.
func (v *Version) LeftSlot(o Output) (slot int, ok bool) {
	switch o.Media {
	case Protobuf:
		return v.slotLeftProto, o.Convert.Kind == ""
	case CBOR:
		return 0, false
	}
	return v.slotLeftJSON, o.Convert.Kind == ""
}

// Entry returns the body of a response with one object. For YAML it is JSON.
func (v *Version) Entry(e *watchcache.Entry, media Media) ([]byte, error) {
	switch media {
	case JSON, YAML:
		return v.JSON(e)
	case CBOR:
		return v.CBOR(e)
	}
	raw, err := v.Raw(e)
	if err != nil {
		return nil, err
	}
	return wrap(v.envelope, raw), nil
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// marshalJSON encodes an object as upstream's serializer does, with a final
// newline.
func marshalJSON(obj any) ([]byte, error) {
	b := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(b)
	b.Reset()
	if err := json.NewEncoder(b).Encode(obj); err != nil {
		return nil, err
	}
	return bytes.Clone(b.Bytes()), nil
}

func marshalProtobuf(obj runtime.Object) ([]byte, error) {
	message, ok := obj.(runtime.ProtobufMarshaller)
	if !ok {
		return nil, fmt.Errorf("%T has no protobuf form", obj)
	}
	data := make([]byte, message.(interface{ Size() int }).Size())
	n, err := message.MarshalTo(data)
	return data[:n], err
}

const protobufPrefix = "k8s\x00"

// Tags of the fields of runtime.Unknown and of the items of lists, all of
// wire type 2.
const (
	tagField1 = 0x0a
	tagField2 = 0x12
)

// envelopeTail is the empty contentEncoding and contentType that follow the
// object.
const envelopeTail = "\x1a\x00\x22\x00"

func envelopeStart(kind schema.GroupVersionKind) []byte {
	apiVersion := kind.GroupVersion().String()
	var meta []byte
	meta = appendBytes(meta, tagField1, []byte(apiVersion))
	meta = appendBytes(meta, tagField2, []byte(kind.Kind))
	return appendBytes([]byte(protobufPrefix), tagField1, meta)
}

func appendBytes(dst []byte, tag byte, data []byte) []byte {
	dst = append(dst, tag)
	dst = binary.AppendUvarint(dst, uint64(len(data)))
	return append(dst, data...)
}

// sizeOf returns the length of n as a varint.
func sizeOf(n int) int {
	size := 1
	for ; n >= 0x80; n >>= 7 {
		size++
	}
	return size
}

func wrap(envelope, raw []byte) []byte {
	out := make([]byte, 0, len(envelope)+1+sizeOf(len(raw))+len(raw)+len(envelopeTail))
	out = append(out, envelope...)
	out = appendBytes(out, tagField2, raw)
	return append(out, envelopeTail...)
}

// PartialMetadata returns the metadata of an object, which it shares.
func PartialMetadata(obj resource.Object, version schema.GroupVersion) *metav1.PartialObjectMetadata {
	p := &metav1.PartialObjectMetadata{}
	if a, ok := obj.(metav1.ObjectMetaAccessor); ok {
		if m, ok := a.GetObjectMeta().(*metav1.ObjectMeta); ok {
			p.ObjectMeta = *m
		}
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		p.ObjectMeta = unstructuredMetadata(u)
	}
	p.SetGroupVersionKind(version.WithKind("PartialObjectMetadata"))
	return p
}

func unstructuredMetadata(u *unstructured.Unstructured) metav1.ObjectMeta {
	var m metav1.ObjectMeta
	if content, ok := u.Object["metadata"].(map[string]any); ok {
		if runtime.DefaultUnstructuredConverter.FromUnstructured(content, &m) == nil {
			return m
		}
	}
	return metav1.ObjectMeta{Name: u.GetName(), Namespace: u.GetNamespace(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion()}
}

// Encode returns the body of a response with an object that is no cache
// entry. Its TypeMeta must be set.
func Encode(obj runtime.Object, media Media) ([]byte, error) {
	switch media {
	case Protobuf:
		raw, err := marshalProtobuf(obj)
		if err != nil {
			return nil, err
		}
		return wrap(envelopeStart(obj.GetObjectKind().GroupVersionKind()), raw), nil
	case CBOR:
		return marshalCBOR(obj)
	default:
		return marshalJSON(obj)
	}
}
