package apiserver

import (
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/resource"
)

// input is a body of the kind that the endpoint expects.
type input struct {
	body  []byte
	media codec.Media
}

func (q *request) input() (input, error) {
	protobuf := q.endpoint.codec.HasProtobuf()
	media, ok := codec.InputMedia(q.http.Header.Get("Content-Type"), protobuf, q.server.CBOR)
	if !ok {
		accepted := codec.NotAcceptable(false, q.server.CBOR)
		if !protobuf {
			accepted = slices.Delete(accepted, int(codec.Protobuf), int(codec.Protobuf)+1)
		}
		return input{}, errUnsupportedMediaType(accepted)
	}
	body, err := q.readBody()
	return input{body, media}, err
}

// decode reads a body as the hub object, defaulted. Unknown and duplicate
// fields are refused, warned of or ignored, as validation says.
func (q *request) decode(in input, validation string) (resource.Object, error) {
	v := q.endpoint.version
	obj := v.New()
	if err := q.decodeInto(obj, q.endpoint.gvk(), in, validation); err != nil {
		return nil, err
	}
	v.Default(obj)
	q.recordBody(obj, q.endpoint.gvk())
	return v.ToHub(obj), nil
}

// decodeInto reads a body as an object of any kind.
func (q *request) decodeInto(obj runtime.Object, kind schema.GroupVersionKind, in input, validation string) error {
	wantStrict := validation != metav1.FieldValidationIgnore
	strict, err := codec.DecodeInto(obj, kind, in.body, in.media, wantStrict, q.server.routes.Load().known)
	if err != nil {
		return err
	}
	actual := obj.GetObjectKind().GroupVersionKind()
	unknown, err := q.coerce(obj)
	if err != nil {
		return codec.CoerceError(err, actual, kind, in.body)
	}
	if wantStrict {
		strict = append(strict, unknown...)
	}
	if len(strict) > 0 {
		if validation == metav1.FieldValidationStrict {
			return codec.StrictError(strict, actual, kind, in.body)
		}
		q.warnStrict(strict)
	}
	return codec.CheckVersion(obj, kind)
}

// coerce brings a custom resource into the form of its schema. unknown names
// the fields that this drops.
func (q *request) coerce(obj runtime.Object) (unknown []error, err error) {
	custom, ok := obj.(*unstructured.Unstructured)
	if !ok || q.endpoint.version.Coerce == nil {
		return nil, nil
	}
	paths, err := q.endpoint.version.Coerce(custom)
	for _, path := range paths {
		unknown = append(unknown, fmt.Errorf("unknown field %q", path))
	}
	return unknown, err
}

// checkName refuses an object that is not the one the path names.
func (q *request) checkName(obj metav1.Object) error {
	switch name := obj.GetName(); {
	case name == "":
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided", q.info.Name))
	case name != q.info.Name:
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", name, q.info.Name))
	}
	return nil
}

// placeInNamespace gives an object the namespace of the request, or refuses
// one that says another.
func (q *request) placeInNamespace(obj metav1.Object) error {
	wanted := q.namespace()
	switch namespace := obj.GetNamespace(); {
	case namespace == wanted:
		return nil
	case namespace == "" || wanted == "":
		obj.SetNamespace(wanted)
		return nil
	}
	return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
}
