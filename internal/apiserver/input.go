package apiserver

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/apiserver/status"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/memory"
	"github.com/coracle-io/coracle/internal/resource"
)

// input decodes what a client sends with a verb: the body and the options. It
// reserves the memory that this takes, and records the object for the audit
// event.
type input struct{ q *request }

// received returns the body and the options of a verb.
func received[O any](in input, parse func(url.Values) (O, error)) (body registry.Body, options O, err error) {
	if body, err = in.body(); err != nil {
		return body, options, err
	}
	options, err = parse(in.q.query())
	return body, options, err
}

// body returns the body with its media type, which the endpoint must accept.
func (in input) body() (registry.Body, error) {
	protobuf, cbor := in.q.call.Endpoint.Codec.HasProtobuf(), in.q.server.cbor
	media, ok := codec.InputMedia(in.contentType(), protobuf, cbor)
	if !ok {
		accepted := codec.NotAcceptable(false, cbor)
		if !protobuf {
			accepted = slices.Delete(accepted, int(codec.Protobuf), int(codec.Protobuf)+1)
		}
		return registry.Body{}, status.UnsupportedMediaType(accepted)
	}
	data, err := in.bytes()
	return registry.Body{Data: data, Media: media}, err
}

func (in input) contentType() string { return in.q.http.Header.Get("Content-Type") }

// bytes returns the whole body. It refuses bodies larger than 3 MiB.
func (in input) bytes() ([]byte, error) {
	body := in.q.body.data
	if in.q.http.ContentLength > maxBodySize || len(body) > maxBodySize {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBodySize))
	}
	return body, in.reserve()
}

// reserve reserves the memory to decode the body.
func (in input) reserve() error {
	q := in.q
	if len(q.body.data) == 0 || q.http.Method == http.MethodDelete {
		return nil
	}
	if err := q.held.checkBody(q.call.Endpoint.Kind != nil, q.call.Now); err != nil {
		return err
	}
	use := in.decodedUse()
	switch {
	case use > maxDecoded:
		return errDecodedTooLarge()
	case use < unaccountedUse:
		return nil
	}
	return q.held.reserve(memory.Need{Own: use})
}

// decodedUse estimates the memory in bytes of the request until its object is
// stored.
func (in input) decodedUse() int64 {
	body, v := &in.q.body, in.q.call.Endpoint.Version
	use := int64(len(body.data)) * decodedCost
	n := body.countElements(in.contentType())
	if n < fewElements || v.New == nil {
		return use
	}
	return max(use, int64(n)*largestElement(v.New())*elementCopies)
}

// newObject returns the object to create and the options.
func (in input) newObject() (resource.Object, *metav1.CreateOptions, error) {
	body, options, err := received(in, createOptions)
	if err != nil {
		return nil, nil, err
	}
	obj, err := in.object(body, options.FieldValidation)
	return obj, options, err
}

// newOfKind decodes the object to create into obj, whose kind differs from the
// resource's.
func (in input) newOfKind(obj runtime.Object, kind schema.GroupVersionKind) (*metav1.CreateOptions, error) {
	body, options, err := received(in, createOptions)
	if err != nil {
		return nil, err
	}
	obj.GetObjectKind().SetGroupVersionKind(kind)
	return options, in.decode(obj, kind, body, options.FieldValidation)
}

// object decodes a body, applies defaults and converts it to the hub version.
// validation is the fieldValidation of the request: Ignore, Warn or Strict.
func (in input) object(body registry.Body, validation string) (resource.Object, error) {
	e := in.q.call.Endpoint
	obj := e.Version.New()
	if err := in.q.call.DecodeInto(obj, e.GVK(), body, validation); err != nil {
		return nil, err
	}
	e.Version.Default(obj)
	in.record(obj, e.GVK())
	return e.Version.ToHub(obj), nil
}

// decode decodes a body into obj without defaults.
func (in input) decode(obj runtime.Object, kind schema.GroupVersionKind, body registry.Body, validation string) error {
	if err := in.q.call.DecodeInto(obj, kind, body, validation); err != nil {
		return err
	}
	in.record(obj, kind)
	return nil
}

// record adds the object that the client sent to the audit event.
func (in input) record(obj runtime.Object, kind schema.GroupVersionKind) {
	call := &in.q.call
	in.q.audit.Object(call.Context, obj, kind, call.Endpoint.GVR(), call.Info.Subresource)
}

// patchType returns the type of the patch, which the endpoint must accept.
func (in input) patchType() (types.PatchType, error) {
	contentType, _, _ := strings.Cut(in.contentType(), ";")
	if accepted := in.q.call.Endpoint.PatchTypes(in.q.server.cbor); !slices.Contains(accepted, contentType) {
		return "", status.UnsupportedMediaType(accepted)
	}
	return types.PatchType(contentType), nil
}

// patch returns the patch with its options.
func (in input) patch(kind types.PatchType) (*registry.Patch, error) {
	body, err := in.bytes()
	if err != nil {
		return nil, err
	}
	if in.q.audit != nil {
		in.q.audit.Patch(func() ([]byte, error) { return registry.PatchAsJSON(kind, body) })
	}
	options, err := patchOptions(in.q.query(), kind)
	if err != nil {
		return nil, err
	}
	return registry.ParsePatch(kind, body, options)
}

// deleteOptions returns the options in the body or, without one, the query.
func (in input) deleteOptions() (*metav1.DeleteOptions, error) {
	body, err := in.bytes()
	if err != nil {
		return nil, err
	}
	options := &metav1.DeleteOptions{}
	if len(body) > 0 {
		media, ok := codec.InputMedia(in.contentType(), true, in.q.server.cbor)
		if !ok {
			return nil, status.UnsupportedMediaType(codec.NotAcceptable(false, in.q.server.cbor))
		}
		if err := codec.DecodeDeleteOptions(options, body, media); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		in.record(options, sentKind(options))
	} else if options, err = deleteOptions(in.q.query()); err != nil {
		return nil, err
	}
	if !in.q.call.Registry.Features.Enabled(feature.AllowUnsafeMalformedObjectDeletion) {
		options.IgnoreStoreReadErrorWithClusterBreakingPotential = nil
	}
	options.Kind, options.APIVersion = "DeleteOptions", "meta.k8s.io/v1"
	return options, status.InvalidOptions("DeleteOptions", metavalidation.ValidateDeleteOptions(options))
}

// ignoresReadErrors reports whether a deletion is of an object that cannot be read.
func ignoresReadErrors(options *metav1.DeleteOptions) bool {
	ignore := options.IgnoreStoreReadErrorWithClusterBreakingPotential
	return ignore != nil && *ignore
}

// sentKind returns the kind in the client's DeleteOptions, or the default.
func sentKind(options *metav1.DeleteOptions) schema.GroupVersionKind {
	kind := options.GroupVersionKind()
	if kind.Empty() {
		return metav1.SchemeGroupVersion.WithKind("DeleteOptions")
	}
	return kind
}
