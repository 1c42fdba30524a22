package codec

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializerjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
)

// customKind returns the kind in a custom resource, which must have one,
// unlike objects of built-in kinds. The caller checks whether it is the right
// one. body is used in errors only.
func customKind(u *unstructured.Unstructured, body []byte) (schema.GroupVersionKind, error) {
	var none schema.GroupVersionKind
	kind, _ := u.Object["kind"].(string)
	apiVersion, _ := u.Object["apiVersion"].(string)
	if u.Object["kind"] != nil && kind == "" || u.Object["apiVersion"] != nil && apiVersion == "" {
		if _, err := serializerjson.DefaultMetaFactory.Interpret(body); err != nil {
			return none, err
		}
	}
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return none, err
	}
	if kind == "" {
		return none, runtime.NewMissingKindErr(string(body))
	}
	return gv.WithKind(kind), nil
}

// CheckVersion refuses an object of another version than the endpoint's.
func CheckVersion(obj runtime.Object, expected schema.GroupVersionKind) error {
	actual := obj.GetObjectKind().GroupVersionKind()
	if actual.GroupVersion() == expected.GroupVersion() {
		return nil
	}
	return decodeError(versionMismatch{actual.GroupVersion(), expected.GroupVersion()}, actual, expected, nil)
}
