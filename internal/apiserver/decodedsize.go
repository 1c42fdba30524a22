package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
)

// A decoded object may be many times as large as its body: in a pod with
// {"containers":[{},{},…]} each three bytes become a container of a kilobyte.
// The server estimates the decoded size before it decodes:
//
//	countElementsIn(body) × largestElement(kind) × elementCopies
const (
	// elementCopies is how often an element is in memory at a time: lists grow
	// by copying, and the object is copied for admission and for the store.
	elementCopies = 4
	// genericElement is the memory of an empty object or a map's entry in a
	// custom resource.
	genericElement = 400
	// fewElements is a number of elements that needs no estimate.
	fewElements = 256
	// manyElements is the number of elements above which a request is large.
	manyElements = 8 << 10
	// maxDecoded bounds the decoded size in bytes. It allows a pod with a
	// quarter of a million containers.
	maxDecoded = 640 << 20
)

// countElementsIn returns an upper bound of the objects, lists and maps in a
// body. A null counts, because it is decoded to an empty object.
func countElementsIn(body []byte, contentType string) int {
	media, _ := codec.InputMedia(contentType, true, true)
	switch media {
	case codec.Protobuf, codec.CBOR:
		// Each element has a length, which is below 32 or announces that many bytes.
		n := len(body) / 32
		for _, b := range body {
			if b < 32 || media == codec.CBOR && b >= 0x80 {
				n++
			}
		}
		return n
	case codec.YAML:
		if !json.Valid(body) {
			return bytes.Count(body, []byte("{")) + bytes.Count(body, []byte(",")) + max(bytes.Count(body, []byte("\n")), bytes.Count(body, []byte("- ")))
		}
	}
	return bytes.Count(body, []byte("{")) + bytes.Count(body, []byte("null"))
}

// elementSizes caches the results of largestElement by type.
var elementSizes sync.Map

// largestElement returns the size in bytes of the largest element of any list
// or map in objects of obj's type.
func largestElement(obj any) int64 {
	if _, ok := obj.(*unstructured.Unstructured); ok {
		return genericElement
	}
	t := reflect.TypeOf(obj)
	if known, ok := elementSizes.Load(t); ok {
		return known.(int64)
	}
	size := elementSize(t, map[reflect.Type]bool{})
	elementSizes.Store(t, size)
	return size
}

func elementSize(t reflect.Type, seen map[reflect.Type]bool) (largest int64) {
	if seen[t] || t == reflect.TypeFor[time.Time]() {
		return 0
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer:
		return elementSize(t.Elem(), seen)
	case reflect.Slice, reflect.Map:
		return max(int64(t.Elem().Size()), elementSize(t.Elem(), seen))
	case reflect.Struct:
		for i := range t.NumField() {
			largest = max(largest, elementSize(t.Field(i).Type, seen))
		}
	}
	return largest
}

func errDecodedTooLarge() error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("decoded, the object would take more than %d MiB of memory", maxDecoded>>20))
}
