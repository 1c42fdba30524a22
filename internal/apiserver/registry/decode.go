package registry

import (
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/resource"
)

// Body is an object as sent by a client.
type Body struct {
	Data  []byte
	Media codec.Media
}

// DecodeInto decodes a body into obj, an object of any kind. validation
// (metav1.FieldValidationStrict and so on) says whether unknown and duplicate
// fields are refused, cause warnings, or are ignored.
func (q *Request) DecodeInto(obj runtime.Object, kind schema.GroupVersionKind, body Body, validation string) error {
	wantStrict := validation != metav1.FieldValidationIgnore
	strict, err := codec.DecodeInto(obj, kind, body.Data, body.Media, wantStrict, q.Registry.Routes().known)
	if err != nil {
		return err
	}
	actual := obj.GetObjectKind().GroupVersionKind()
	unknown, err := q.Endpoint.coerce(obj)
	if err != nil {
		return codec.CoerceError(err, actual, kind, body.Data)
	}
	if wantStrict {
		strict = append(strict, unknown...)
	}
	if len(strict) > 0 {
		if validation == metav1.FieldValidationStrict {
			return codec.StrictError(strict, actual, kind, body.Data)
		}
		q.warnStrict(strict)
	}
	return codec.CheckVersion(obj, kind)
}

// coerce converts a custom resource to the form of its schema. unknown has an
// error for each field that it drops. It refuses objects of built-in kinds that
// cannot be decoded.
func (e *Endpoint) coerce(obj runtime.Object) (unknown []error, err error) {
	custom, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, e.undecodable(obj)
	}
	if e.Version.Coerce == nil {
		return nil, nil
	}
	paths, err := e.Version.Coerce(custom)
	for _, path := range paths {
		unknown = append(unknown, fmt.Errorf("unknown field %q", path))
	}
	return unknown, err
}

// undecodable returns why an object of a built-in kind cannot be decoded, or nil.
func (e *Endpoint) undecodable(obj runtime.Object) error {
	if o, ok := obj.(resource.Object); ok && e.Version.Undecodable != nil {
		return e.Version.Undecodable(o)
	}
	return nil
}

// checkName refuses an object whose name differs from the one in the path.
func (q *Request) checkName(obj metav1.Object) error {
	switch name := obj.GetName(); {
	case name == "":
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided", q.Info.Name))
	case name != q.Info.Name:
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", name, q.Info.Name))
	}
	return nil
}

// PlaceInNamespace sets the namespace of the request on an object. It refuses
// an object with another namespace.
func (q *Request) PlaceInNamespace(obj metav1.Object) error {
	wanted := q.Namespace()
	switch namespace := obj.GetNamespace(); {
	case namespace == wanted:
		return nil
	case namespace == "" || wanted == "":
		obj.SetNamespace(wanted)
		return nil
	}
	return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
}

// warnStrict adds a warning for each unknown or duplicate field.
func (q *Request) warnStrict(errs []error) {
	for _, err := range errs {
		text := err.Error()
		// YAML's decoder lists its findings line by line after a prefix.
		for _, prefix := range []string{"yaml: unmarshal errors:\n", "error converting YAML to JSON: yaml: unmarshal errors:\n"} {
			if rest, ok := strings.CutPrefix(text, prefix); ok {
				text = rest
				break
			}
		}
		for line := range strings.SplitSeq(text, "\n") {
			q.warn(strings.TrimSpace(line))
		}
	}
}
