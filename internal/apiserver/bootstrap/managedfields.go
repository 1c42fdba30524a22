package bootstrap

import (
	"encoding/json"
	"errors"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/resource"
)

// fieldManager owns the fields of the default objects.
const fieldManager = "kube-apiserver"

// owner is a registry.FieldManagers for the default objects.
type owner struct{ clock clock.PassiveClock }

// Update implements registry.FieldManagers: this server owns the fields of
// objects that it creates.
func (o owner) Update(k registry.ManagedKind, live, obj resource.Object, _ string) error {
	if live != nil {
		return nil
	}
	return own(k.Version, obj, o.clock.Now())
}

// KeepTimes implements registry.FieldManagers. It does nothing, since existing
// entries stay.
func (owner) KeepTimes(resource.Object, resource.Object) {}

// Apply implements registry.FieldManagers. Default objects are not applied.
func (owner) Apply(registry.ManagedKind, resource.Object, map[string]any, string, bool) (resource.Object, error) {
	return nil, errors.ErrUnsupported
}

// own records in a new object that this server owns its fields. It owns lists
// and references of default objects as a whole, and other fields one by one.
// That needs no OpenAPI schema, whose parsing would take longer than the rest
// of the start.
func own(v *resource.Version, obj resource.Object, now time.Time) error {
	empty, err := runtime.DefaultUnstructuredConverter.ToUnstructured(v.New())
	if err != nil {
		return err
	}
	full, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return err
	}
	for _, key := range []string{"apiVersion", "kind", "status"} {
		delete(full, key)
	}
	if metadata, ok := full["metadata"].(map[string]any); ok {
		for _, key := range []string{"name", "namespace", "uid", "creationTimestamp", "generation", "resourceVersion"} {
			delete(metadata, key)
		}
	}
	if spec, ok := full["spec"].(map[string]any); ok {
		delete(spec, "finalizers") // the registry sets them in every namespace
	}
	raw, err := json.Marshal(fieldsOf(full, empty))
	if err != nil {
		return err
	}
	at := metav1.NewTime(now.Truncate(time.Second))
	obj.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager: fieldManager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: v.String(), Time: &at,
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(string(raw)),
	}})
	return nil
}

// atomic reports whether a structure is owned as a whole, as its schema says.
func atomic(field string) bool { return field == "roleRef" }

// fieldsOf returns the fields in which a value differs from an empty one, as
// FieldsV1.
func fieldsOf(value, empty map[string]any) map[string]any {
	set := map[string]any{}
	for key, v := range value {
		before, was := empty[key]
		if was && reflect.DeepEqual(v, before) {
			continue
		}
		inner, isMap := v.(map[string]any)
		if !isMap || atomic(key) {
			set["f:"+key] = map[string]any{}
			continue
		}
		emptyInner, _ := before.(map[string]any)
		fields := fieldsOf(inner, emptyInner)
		if emptyInner == nil {
			fields["."] = map[string]any{}
		}
		if len(fields) > 0 {
			set["f:"+key] = fields
		}
	}
	return set
}
