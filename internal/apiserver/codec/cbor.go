package codec

import (
	"encoding/json"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializercbor "k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	kjson "sigs.k8s.io/json"

	"github.com/coracle-io/coracle/internal/amount"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// CBOR (KEP-4222) is assembled like the other media types. Map keys are in
// the order of their encoding, which is by length first:
//
//	d9d9f7  {kind, metadata, apiVersion, ...}                    an object
//	d9d9f7  {kind, items: [{metadata, ...}, ...], metadata, apiVersion}   a list
//	d9d9f7  {type, object: d9d9f7 {...}}                         an event; events follow each other

// selfDescribed is the tag at the start of every document (RFC 8949, 3.4.6).
const selfDescribed = "\xd9\xd9\xf7"

// Heads of CBOR maps and arrays (RFC 8949, 3.1).
const (
	majorArray = 4 << 5
	mapOfTwo   = 5<<5 | 2
	mapOfFour  = 5<<5 | 4
)

// marshalCBOR encodes an object as upstream's serializer does, with the tag.
func marshalCBOR(obj any) ([]byte, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		obj = u.Object
	}
	data, err := direct.Marshal(obj)
	if err != nil {
		return nil, err
	}
	return append([]byte(selfDescribed), data...), nil
}

// CBOR returns an entry as a CBOR document.
func (v *Version) CBOR(e *watchcache.Entry) ([]byte, error) {
	return e.Encoded(v.slotCBOR, func() ([]byte, error) {
		obj, err := v.Object(e)
		if err != nil {
			return nil, err
		}
		return marshalCBOR(obj)
	})
}

// itemCBOR returns an entry as an item of a list. Items of typed lists have
// no type.
func (v *Version) itemCBOR(e *watchcache.Entry) ([]byte, error) {
	return e.Encoded(v.slotItemCBOR, func() ([]byte, error) {
		obj, err := v.Object(e)
		if err != nil {
			return nil, err
		}
		if u, ok := obj.(*unstructured.Unstructured); ok {
			return direct.Marshal(u.Object)
		}
		return direct.Marshal(withoutTypeMeta(obj))
	})
}

// withoutTypeMeta returns a shallow copy of an object without its type.
func withoutTypeMeta(obj resource.Object) runtime.Object {
	c := reflect.New(reflect.TypeOf(obj).Elem())
	c.Elem().Set(reflect.ValueOf(obj).Elem())
	untyped := c.Interface().(runtime.Object)
	untyped.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return untyped
}

func newCBORList(kind schema.GroupVersionKind, entries []*watchcache.Entry, meta metav1.ListMeta, encode encoder) (*List, error) {
	l := &List{media: CBOR, entries: entries, encode: encode}
	l.start = append([]byte(selfDescribed), mapOfFour)
	for _, part := range []string{"kind", kind.Kind, "items"} {
		l.start = appendCBORString(l.start, part)
	}
	l.start = appendCBORHead(l.start, majorArray, len(entries))
	metadata, err := direct.Marshal(meta)
	if err != nil {
		return nil, err
	}
	l.end = append(appendCBORString(nil, "metadata"), metadata...)
	l.end = appendCBORString(appendCBORString(l.end, "apiVersion"), kind.GroupVersion().String())
	return l.measured(0)
}

// appendCBORString appends a string as a byte string, as upstream does.
func appendCBORString(dst []byte, s string) []byte {
	const majorBytes = 2 << 5
	return append(appendCBORHead(dst, majorBytes, len(s)), s...)
}

func appendCBORHead(dst []byte, major byte, n int) []byte {
	switch {
	case n < 24:
		return append(dst, major|byte(n))
	case n < 1<<8:
		return append(dst, major|24, byte(n))
	case n < 1<<16:
		return append(dst, major|25, byte(n>>8), byte(n))
	}
	return append(dst, major|26, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

func appendCBORFrame(dst []byte, eventType string, object []byte) []byte {
	dst = append(append(dst, selfDescribed...), mapOfTwo)
	dst = appendCBORString(appendCBORString(dst, "type"), eventType)
	return append(appendCBORString(dst, "object"), object...)
}

// cborTable returns a Table in CBOR.
func (v *Version) cborTable(entries []*watchcache.Entry, meta metav1.ListMeta, o TableOptions) ([]byte, error) {
	table := metav1.Table{ListMeta: meta, Rows: make([]metav1.TableRow, 0, len(entries))}
	table.SetGroupVersionKind(o.Version.WithKind("Table"))
	if !o.NoHeaders {
		table.ColumnDefinitions = v.Resource.Table.Columns
		if table.ColumnDefinitions == nil {
			table.ColumnDefinitions = []metav1.TableColumnDefinition{}
		}
	}
	cells := v.row(entries, o)
	for _, e := range entries {
		shown, err := e.Shown(v.Version)
		if err != nil {
			return nil, err
		}
		row := metav1.TableRow{Cells: cells(shown, o.Now), Conditions: v.rowConditions(e)}
		switch o.IncludeObject {
		case metav1.IncludeNone:
		case metav1.IncludeObject:
			row.Object.Raw, err = v.CBOR(e)
		default:
			row.Object.Raw, err = marshalCBOR(PartialMetadata(shown, o.Version))
		}
		if err != nil {
			return nil, err
		}
		table.Rows = append(table.Rows, row)
	}
	return marshalCBOR(&table)
}

// decodeCBOR decodes CBOR into obj and returns the kind in the body.
func decodeCBOR(obj runtime.Object, expected schema.GroupVersionKind, body []byte, wantStrict bool) (strict []error, actual schema.GroupVersionKind, err error) {
	if err := amount.CheckCBOR(obj, body); err != nil {
		return nil, expected, err
	}
	s := serializercbor.NewSerializer(oneKind{expected}, oneKind{expected}, serializercbor.Strict(wantStrict))
	_, said, err := s.Decode(body, &expected, obj)
	if said != nil {
		actual = withDefaults(*said, expected)
	}
	if found, ok := runtime.AsStrictDecodingError(err); ok {
		return found.Errors(), actual, nil
	}
	return nil, actual, err
}

// oneKind is a scheme of one kind, whose object exists already.
type oneKind struct{ kind schema.GroupVersionKind }

// ObjectKinds implements runtime.ObjectTyper.
func (k oneKind) ObjectKinds(runtime.Object) ([]schema.GroupVersionKind, bool, error) {
	return []schema.GroupVersionKind{k.kind}, false, nil
}

// Recognizes implements runtime.ObjectTyper.
func (k oneKind) Recognizes(kind schema.GroupVersionKind) bool { return kind == k.kind }

// New implements runtime.ObjectCreater.
func (oneKind) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	return nil, runtime.NewNotRegisteredErrForKind(schemeName, kind)
}

// CBORToJSON converts a CBOR document, whose value is a map, to a JSON
// object.
func CBORToJSON(body []byte) ([]byte, error) {
	var content map[string]any
	if err := direct.Unmarshal(body, &content); err != nil {
		return nil, fmt.Errorf("invalid CBOR: %w", err)
	}
	return json.Marshal(content)
}

func decodeDeleteOptionsCBOR(options *metav1.DeleteOptions, body []byte) error {
	converted, err := CBORToJSON(body)
	if err != nil {
		return err
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(converted, options)
}
