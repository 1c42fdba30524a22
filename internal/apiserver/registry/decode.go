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
)

// Body is an object as a client sent it.
type Body struct {
	Data  []byte
	Media codec.Media
}

// DecodeInto reads a body as an object of any kind. Unknown and duplicate
// fields are refused, warned of or ignored, as validation says
// (metav1.FieldValidationStrict and so on).
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

// coerce brings a custom resource into the form of its schema. unknown names
// the fields that this drops.
func (e *Endpoint) coerce(obj runtime.Object) (unknown []error, err error) {
	custom, ok := obj.(*unstructured.Unstructured)
	if !ok || e.Version.Coerce == nil {
		return nil, nil
	}
	paths, err := e.Version.Coerce(custom)
	for _, path := range paths {
		unknown = append(unknown, fmt.Errorf("unknown field %q", path))
	}
	return unknown, err
}

// CheckName refuses an object that is not the one the path names.
func (q *Request) CheckName(obj metav1.Object) error {
	switch name := obj.GetName(); {
	case name == "":
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided", q.Info.Name))
	case name != q.Info.Name:
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", name, q.Info.Name))
	}
	return nil
}

// PlaceInNamespace gives an object the namespace of the request, or refuses
// one that says another.
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

// warnStrict warns of unknown and duplicate fields, one warning each.
func (q *Request) warnStrict(errs []error) {
	for _, err := range errs {
		text := err.Error()
		for _, prefix := range yamlPrefixes {
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

// yamlPrefixes begin the messages of YAML's decoder, which lists its findings
// line by line.
var yamlPrefixes = []string{"yaml: unmarshal errors:\n", "error converting YAML to JSON: yaml: unmarshal errors:\n"}
