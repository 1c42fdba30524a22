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

// What a body is decoded to may be many times as large: of a pod with
// {"containers":[{},{},…]} each three bytes become a container of a kilobyte.
//
//	body ─elementsOf─► how many objects it has room for
//	                    × largestElement of the kind, each some times over
const (
	// elementCopies is how often an element of a list is in memory at a time:
	// the list grows, and is copied for admission and for the store.
	elementCopies = 4
	// genericElement is what an empty object of a custom resource takes, and
	// the entry of a map.
	genericElement = 400
	// fewElements take little memory, whatever they are.
	fewElements = 256
	// manyElements is from how many elements a request is large.
	manyElements = 8 << 10
	// maxDecoded is what a body may be decoded to, in bytes: a pod with a
	// quarter of a million containers.
	maxDecoded = 640 << 20
)

// elementsOf is how many objects, or lists and maps of them, a body has at most.
// An element that is null becomes an empty object.
func elementsOf(body []byte, contentType string) int {
	media, _ := codec.InputMedia(contentType, true, true)
	switch media {
	case codec.Protobuf, codec.CBOR:
		// Each has a length, which is below 32 or announces that many bytes.
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

// elementSizes are the results of largestElement by type.
var elementSizes sync.Map

// largestElement is the size of the largest element of a list or map in
// objects of a type, in bytes.
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

// decodedUse is how many bytes a body takes until its object is stored.
func (q operation) decodedUse() int64 {
	use := int64(len(q.body.data)) * decodedCost
	n := q.body.countElements(q.http.Header.Get("Content-Type"))
	if n < fewElements || q.Endpoint == nil || q.Endpoint.Version.New == nil {
		return use
	}
	return max(use, int64(n)*largestElement(q.Endpoint.Version.New())*elementCopies)
}
