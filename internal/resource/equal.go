package resource

import (
	"bytes"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
)

// message is implemented by the protobuf types of the API.
type message interface {
	Size() int
	MarshalToSizedBuffer(data []byte) (int, error)
}

var scratch = sync.Pool{New: func() any { b := make([]byte, 0, 8<<10); return &b }}

// Equal reports whether two values of one type are equal as equality.Semantic
// defines it: absent and empty lists are equal, and so are two notations of
// one quantity. It compares the encodings first, which costs a tenth of
// comparing the fields and succeeds for most equal values.
func Equal(a, b any) bool {
	if ma, ok := asMessage(a); ok {
		if mb, ok := asMessage(b); ok && sameEncoding(ma, mb) {
			return true
		}
	}
	if la, lb := reflect.ValueOf(a), reflect.ValueOf(b); la.Kind() == reflect.Slice && la.Type() == lb.Type() && sameItems(la, lb) {
		return true
	}
	return equality.Semantic.DeepEqual(a, b)
}

// Same reports whether two objects are stored as the same bytes.
func Same(a, b Object) bool {
	ma, ok := a.(message)
	if !ok {
		return equality.Semantic.DeepEqual(a, b)
	}
	mb, ok := b.(message)
	return ok && sameEncoding(ma, mb)
}

// sameItems reports whether two lists of messages have the same encoding.
func sameItems(a, b reflect.Value) bool {
	if a.Len() != b.Len() {
		return false
	}
	for i := range a.Len() {
		ma, ok := a.Index(i).Addr().Interface().(message)
		if !ok || !sameEncoding(ma, b.Index(i).Addr().Interface().(message)) {
			return false
		}
	}
	return true
}

func asMessage(v any) (message, bool) {
	if m, ok := v.(message); ok {
		return m, !reflect.ValueOf(v).IsNil()
	}
	value := reflect.ValueOf(v)
	if value.Kind() != reflect.Struct {
		return nil, false
	}
	pointer := reflect.New(value.Type())
	m, ok := pointer.Interface().(message)
	if ok {
		pointer.Elem().Set(value)
	}
	return m, ok
}

func sameEncoding(a, b message) bool {
	size := a.Size()
	if size != b.Size() || reflect.TypeOf(a) != reflect.TypeOf(b) {
		return false
	}
	pooled := scratch.Get().(*[]byte)
	defer scratch.Put(pooled)
	if cap(*pooled) < 2*size {
		*pooled = make([]byte, 0, 2*size)
	}
	left, right := (*pooled)[:size], (*pooled)[size:2*size]
	if _, err := a.MarshalToSizedBuffer(left); err != nil {
		return false
	}
	if _, err := b.MarshalToSizedBuffer(right); err != nil {
		return false
	}
	return bytes.Equal(left, right)
}
