package resource

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	goruntime "runtime"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/coracle-io/coracle/internal/amount"
)

// A stored value is one of two forms, which the first bytes distinguish:
//
//	"k8s\x00" + runtime.Unknown{apiVersion, kind, raw: protobuf of the object}
//	{"kind":..., "apiVersion":..., "metadata":...}\n
//
// Built-in kinds are written in the first form, custom resources in the
// second. Both carry the version they were written in.
const protobufPrefix = "k8s\x00"

// envelopeOverhead is room for the tags and lengths around the object: four
// tags and lengths in runtime.Unknown, two in its TypeMeta.
const envelopeOverhead = 48

var errNoObject = errors.New("stored value is empty")

// EncodeStored returns the bytes that are stored for a hub object of r. They
// are the same that upstream stores. They never contain a resourceVersion,
// because the store's revision is the only source of it. EncodeStored does not
// change obj; it copies one that has a resourceVersion, so callers on hot
// paths clear it first.
func EncodeStored(r *Resource, obj Object) ([]byte, error) {
	if obj.GetResourceVersion() != "" {
		obj = obj.DeepCopyObject().(Object)
		obj.SetResourceVersion("")
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return encodeJSON(u.Object)
	}
	kind := obj.GetObjectKind().GroupVersionKind()
	if kind.Kind == "" || kind.Version == "" {
		return nil, fmt.Errorf("encode %T %s for storage: apiVersion or kind is not set", obj, obj.GetName())
	}
	message, ok := obj.(runtime.ProtobufMarshaller)
	if !ok || r.Storage.StoredAsJSON {
		return encodeJSON(obj)
	}
	return EncodeProtobuf(message, kind)
}

// EncodeProtobuf returns an object in the first of the two stored forms. It is
// for data that is stored besides the API's objects.
func EncodeProtobuf(message runtime.ProtobufMarshaller, kind schema.GroupVersionKind) ([]byte, error) {
	envelope := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind}}
	size := message.Size()
	data := make([]byte, len(protobufPrefix)+envelopeOverhead+len(envelope.APIVersion)+len(envelope.Kind)+size)
	copy(data, protobufPrefix)
	n, err := envelope.NestedMarshalTo(data[len(protobufPrefix):], message, uint64(size))
	if err != nil {
		return nil, fmt.Errorf("encode a %s for storage: %w", kind.Kind, err)
	}
	return data[:len(protobufPrefix)+n], nil
}

// encodeJSON writes JSON as upstream's serializer does, with its final newline.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(v); err != nil {
		return nil, fmt.Errorf("encode for storage: %w", err)
	}
	return b.Bytes(), nil
}

// DecodeStored reads what EncodeStored or upstream wrote for an object of r,
// in any version of r. It returns the object in the hub version with defaults,
// TypeMeta and resourceVersion set, and does not retain data. A panic in the
// functions of the kind or in the schema of a custom resource becomes an
// error, so that one value cannot keep the others from being read. So does a
// quantity that would take hours to compute with.
func DecodeStored(r *Resource, data []byte, revision int64) (obj Object, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			obj, err = nil, fmt.Errorf("decode stored %s: panic in %s: %v", r.Plural, panicking(), reason)
		}
	}()
	obj, version, err := decodeAny(r, data)
	if err != nil {
		return nil, fmt.Errorf("decode stored %s: %w", r.Plural, err)
	}
	if version.FromStored != nil {
		if obj, err = version.FromStored(obj); err != nil {
			return nil, fmt.Errorf("decode stored %s: %w", r.Plural, err)
		}
	} else {
		if version.Default != nil {
			version.Default(obj)
		}
		if !version.Hub {
			obj = version.ToHub(obj)
		}
	}
	obj.SetResourceVersion(strconv.FormatInt(revision, 10))
	return obj, nil
}

// panicking returns the name and line of the function that panicked. Call it
// in the deferred function that recovers.
func panicking() string {
	callers := make([]uintptr, 16)
	frames := goruntime.CallersFrames(callers[:goruntime.Callers(1, callers)])
	panicked := false
	for frame, more := frames.Next(); more; frame, more = frames.Next() {
		if panicked && !strings.HasPrefix(frame.Function, "runtime.") {
			return fmt.Sprintf("%s:%d", frame.Function, frame.Line)
		}
		panicked = panicked || frame.Function == "runtime.gopanic"
	}
	return "unknown function"
}

func decodeAny(r *Resource, data []byte) (Object, *Version, error) {
	if len(data) == 0 {
		return nil, nil, errNoObject
	}
	if raw, ok := bytes.CutPrefix(data, []byte(protobufPrefix)); ok {
		return decodeProtobuf(r, raw)
	}
	if isUnstructured(r.Hub().New()) {
		return decodeUnstructured(r, data)
	}
	var meta runtime.TypeMeta
	if err := json.Unmarshal(data, &meta); err != nil {
		return nil, nil, err
	}
	version, err := storedVersion(r, meta)
	if err != nil {
		return nil, nil, err
	}
	obj := version.New()
	if err := amount.CheckStoredJSON(obj, data); err != nil {
		return nil, nil, err
	}
	if err := utiljson.Unmarshal(data, obj); err != nil {
		return nil, nil, err
	}
	return obj, version, nil
}

func decodeProtobuf(r *Resource, raw []byte) (Object, *Version, error) {
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(raw); err != nil {
		return nil, nil, err
	}
	version, err := storedVersion(r, envelope.TypeMeta)
	if err != nil {
		return nil, nil, err
	}
	obj := version.New()
	message, ok := obj.(interface{ Unmarshal([]byte) error })
	if !ok {
		return nil, nil, fmt.Errorf("%T has no protobuf form", obj)
	}
	if err := amount.CheckStoredProtobuf(obj, envelope.Raw); err != nil {
		return nil, nil, err
	}
	if err := message.Unmarshal(envelope.Raw); err != nil {
		return nil, nil, err
	}
	return obj, version, nil
}

// decodeUnstructured reads a custom resource. An object in a version that its
// definition no longer names is taken as one of the hub version, because a
// definition without conversion promises that all versions are alike.
func decodeUnstructured(r *Resource, data []byte) (Object, *Version, error) {
	content := map[string]any{}
	if err := utiljson.Unmarshal(data, &content); err != nil {
		return nil, nil, err
	}
	obj := &unstructured.Unstructured{Object: content}
	version, err := storedVersion(r, runtime.TypeMeta{APIVersion: obj.GetAPIVersion(), Kind: obj.GetKind()})
	if err != nil {
		version = r.Hub()
		obj.SetGroupVersionKind(version.WithKind(r.Kind))
	}
	return obj, version, nil
}

// storedVersion returns the version of r that a stored object is in.
func storedVersion(r *Resource, meta runtime.TypeMeta) (*Version, error) {
	gv, err := schema.ParseGroupVersion(meta.APIVersion)
	if err != nil {
		return nil, err
	}
	for i := range r.Versions {
		if r.Versions[i].GroupVersion == gv && r.Kind == meta.Kind {
			return &r.Versions[i], nil
		}
	}
	return nil, fmt.Errorf("%s %s is not a version of %s", meta.APIVersion, meta.Kind, r.GroupResource())
}

func isUnstructured(obj Object) bool {
	_, ok := obj.(*unstructured.Unstructured)
	return ok
}
