package codec

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializerjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/amount"
)

// Known reports whether a kind is served. It is used in the error for an
// object that was sent to the wrong endpoint.
type Known func(schema.GroupVersionKind) bool

// schemeName is the name of the list of known kinds in upstream's messages.
const schemeName = "pkg/api/legacyscheme/scheme.go:30"

// DecodeInto decodes a request body into obj, a new object of the expected
// kind with its TypeMeta set. strict lists unknown and duplicate fields, if
// wantStrict is set. err is a BadRequest. A custom resource keeps the kind in
// the body (see CheckVersion).
func DecodeInto(obj runtime.Object, expected schema.GroupVersionKind, body []byte, media Media, wantStrict bool, known Known) (strict []error, err error) {
	var actual schema.GroupVersionKind
	switch media {
	case Protobuf:
		actual, err = decodeProtobuf(obj, expected, body)
	case CBOR:
		strict, actual, err = decodeCBOR(obj, expected, body, wantStrict)
	case YAML:
		strict, actual, err = decodeYAML(obj, expected, body, wantStrict)
	default:
		strict, actual, err = DecodeJSON(obj, expected, body, wantStrict)
	}
	_, custom := obj.(*unstructured.Unstructured)
	if wrong := WrongKind(actual, expected, known); wrong != nil && !custom {
		err = wrong
	}
	if err != nil {
		return nil, decodeError(err, actual, expected, body)
	}
	if !custom {
		obj.GetObjectKind().SetGroupVersionKind(expected)
	}
	return strict, nil
}

// DecodeJSON decodes JSON into obj, a new object of the expected kind, and
// returns the kind in the body. It returns the errors of the decoder unchanged,
// and an amount.RangeError for a quantity that takes too long to compute with.
func DecodeJSON(obj runtime.Object, expected schema.GroupVersionKind, body []byte, wantStrict bool) ([]error, schema.GroupVersionKind, error) {
	var strict []error
	err := amount.CheckJSON(obj, body)
	if err != nil {
		return nil, expected, err
	}
	switch u, isUnstructured := obj.(*unstructured.Unstructured); {
	case isUnstructured:
		content := map[string]any{}
		if wantStrict {
			strict, err = kjson.UnmarshalStrict(body, &content)
		} else {
			err = kjson.UnmarshalCaseSensitivePreserveInts(body, &content)
		}
		u.Object = content
	case decodeFast(obj, body):
	case wantStrict:
		strict, err = kjson.UnmarshalStrict(body, obj)
	default:
		err = kjson.UnmarshalCaseSensitivePreserveInts(body, obj)
	}
	if err != nil {
		actual, metaErr := serializerjson.DefaultMetaFactory.Interpret(body)
		if metaErr != nil {
			return nil, schema.GroupVersionKind{}, metaErr
		}
		return nil, withDefaults(*actual, expected), err
	}
	if u, custom := obj.(*unstructured.Unstructured); custom {
		actual, err := customKind(u, body)
		return strict, actual, err
	}
	if t, ok := obj.GetObjectKind().(*metav1.TypeMeta); ok {
		if _, err := schema.ParseGroupVersion(t.APIVersion); err != nil {
			return nil, schema.GroupVersionKind{}, err
		}
	}
	actual := withDefaults(obj.GetObjectKind().GroupVersionKind(), expected)
	return strict, actual, nil
}

func decodeYAML(obj runtime.Object, expected schema.GroupVersionKind, body []byte, wantStrict bool) ([]error, schema.GroupVersionKind, error) {
	converted, err := yaml.YAMLToJSON(body)
	if err != nil {
		return nil, schema.GroupVersionKind{}, err
	}
	strict, actual, err := DecodeJSON(obj, expected, converted, wantStrict)
	if err == nil && wantStrict {
		if _, duplicate := yaml.YAMLToJSONStrict(body); duplicate != nil {
			strict = append([]error{duplicate}, strict...)
		}
	}
	return strict, actual, err
}

func decodeProtobuf(obj runtime.Object, expected schema.GroupVersionKind, body []byte) (schema.GroupVersionKind, error) {
	var none schema.GroupVersionKind
	if len(body) == 0 {
		return none, errors.New("empty data")
	}
	raw, ok := bytes.CutPrefix(body, []byte(protobufPrefix))
	if !ok {
		return none, fmt.Errorf("provided data does not appear to be a protobuf message, expected prefix %v", []byte(protobufPrefix))
	}
	if len(raw) == 0 {
		return none, errors.New("empty body")
	}
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(raw); err != nil {
		return none, err
	}
	actual := withDefaults(envelope.GroupVersionKind(), expected)
	if actual != expected {
		return actual, nil
	}
	message, ok := obj.(interface{ Unmarshal([]byte) error })
	if !ok {
		return actual, fmt.Errorf("object %T does not implement the protobuf marshalling interface and cannot be encoded to a protobuf message", obj)
	}
	if err := checkNesting(obj, envelope.Raw); err != nil {
		return actual, err
	}
	if err := amount.CheckProtobuf(obj, envelope.Raw); err != nil {
		return actual, err
	}
	return actual, message.Unmarshal(envelope.Raw)
}

// withDefaults returns actual with its empty fields set from expected.
func withDefaults(actual, expected schema.GroupVersionKind) schema.GroupVersionKind {
	if actual.Kind == "" {
		actual.Kind = expected.Kind
	}
	if actual.Version == "" && (actual.Group == "" || actual.Group == expected.Group) {
		actual.Group, actual.Version = expected.Group, expected.Version
	}
	return actual
}

// WrongKind returns the error for an object of another kind than expected, or
// nil.
func WrongKind(actual, expected schema.GroupVersionKind, known Known) error {
	switch {
	case actual == expected || actual.Kind == "":
		return nil
	case known == nil || !known(actual):
		return runtime.NewNotRegisteredErrForKind(schemeName, actual)
	case actual.Kind == expected.Kind && actual.Group == expected.Group:
		return versionMismatch{actual.GroupVersion(), expected.GroupVersion()}
	}
	return fmt.Errorf("converting (%s.%s) to (%s.%s): unknown conversion", actual.Version, actual.Kind, packageOf(expected.Group), expected.Kind)
}

func packageOf(group string) string {
	if group == "" {
		return "core"
	}
	name, _, _ := bytes.Cut([]byte(group), []byte("."))
	return string(name)
}

type versionMismatch struct{ actual, expected schema.GroupVersion }

func (e versionMismatch) Error() string {
	return fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", e.actual, e.expected)
}

func decodeError(err error, actual, expected schema.GroupVersionKind, body []byte) error {
	if mismatch := (versionMismatch{}); errors.As(err, &mismatch) {
		return apierrors.NewBadRequest(err.Error())
	}
	if actual.Kind != "" {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", actual.Kind, actual.Version, expected.Kind, err))
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v (%s)", expected.Kind, err, summary(body)))
}

// StrictError returns the error for unknown or duplicate fields.
func StrictError(strict []error, actual, expected schema.GroupVersionKind, body []byte) error {
	return decodeError(runtime.NewStrictDecodingError(strict), actual, expected, body)
}

// CoerceError returns the error for an object that does not fit its schema.
func CoerceError(err error, actual, expected schema.GroupVersionKind, body []byte) error {
	return decodeError(err, actual, expected, body)
}

// summary returns the start of a body for an error message.
func summary(body []byte) string {
	const limit = 30
	if len(body) == 0 {
		return "<empty>"
	}
	render := hex.EncodeToString
	if body[0] == '{' {
		render = func(b []byte) string { return string(b) }
	}
	if len(body) > limit {
		return render(body[:limit]) + " ..."
	}
	return render(body)
}

// DecodeDeleteOptions decodes the body of a DELETE. The options may be of any
// group's version, or without a kind.
func DecodeDeleteOptions(options *metav1.DeleteOptions, body []byte, media Media) error {
	var err error
	switch media {
	case Protobuf:
		raw, ok := bytes.CutPrefix(body, []byte(protobufPrefix))
		if !ok {
			return fmt.Errorf("provided data does not appear to be a protobuf message, expected prefix %v", []byte(protobufPrefix))
		}
		var envelope runtime.Unknown
		if err = envelope.Unmarshal(raw); err == nil {
			options.Kind = envelope.Kind
			err = options.Unmarshal(envelope.Raw)
		}
	case CBOR:
		err = decodeDeleteOptionsCBOR(options, body)
	case YAML:
		if body, err = yaml.YAMLToJSON(body); err == nil {
			err = kjson.UnmarshalCaseSensitivePreserveInts(body, options)
		}
	default:
		err = kjson.UnmarshalCaseSensitivePreserveInts(body, options)
	}
	if err == nil && options.Kind != "" && options.Kind != "DeleteOptions" {
		err = errors.New("decoded object cannot be converted to DeleteOptions")
	}
	return err
}
