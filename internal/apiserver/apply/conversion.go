package apply

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coracle-io/coracle/internal/resource"
)

// conversion converts, defaults and creates the objects of one resource for the
// library. It returns objects that need no conversion without a copy.
type conversion struct {
	resource *resource.Resource
	version  *resource.Version
}

// Convert implements runtime.ObjectConvertor. The library never calls it.
func (c conversion) Convert(_, _, _ any) error {
	return fmt.Errorf("%s: only conversion to a version is known", c.resource.Plural)
}

// ConvertFieldLabel implements runtime.ObjectConvertor.
func (conversion) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

// ConvertToVersion implements runtime.ObjectConvertor.
func (c conversion) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	gv, ok := target.(schema.GroupVersion)
	if !ok {
		return nil, fmt.Errorf("%s: %v is not a version", c.resource.Plural, target)
	}
	from := c.find(in.GetObjectKind().GroupVersionKind().GroupVersion())
	to := c.find(gv)
	if from == nil || to == nil {
		// The library takes this error to mean that the version is no longer
		// served.
		return nil, runtime.NewNotRegisteredGVKErrForTarget(c.resource.Plural, gv.WithKind(c.resource.Kind), target)
	}
	obj, err := c.typed(in, from)
	if err != nil {
		return nil, err
	}
	if from == to {
		return withoutManagers(obj), nil
	}
	return to.From(from.ToHub(obj))
}

// withoutManagers returns a shallow copy of an object without its managed
// fields, which have no managers, so that the library need not walk them.
func withoutManagers(obj resource.Object) resource.Object {
	v := reflect.ValueOf(obj).Elem()
	if len(obj.GetManagedFields()) == 0 || v.Kind() != reflect.Struct {
		return obj
	}
	if _, custom := obj.(*unstructured.Unstructured); custom {
		return obj
	}
	bare := reflect.New(v.Type())
	bare.Elem().Set(v)
	made := bare.Interface().(resource.Object)
	made.SetManagedFields(nil)
	return made
}

func (c conversion) find(gv schema.GroupVersion) *resource.Version {
	for i := range c.resource.Versions {
		if c.resource.Versions[i].GroupVersion == gv {
			return &c.resource.Versions[i]
		}
	}
	return nil
}

// typed converts the result of a merge to the version's type.
func (c conversion) typed(in runtime.Object, v *resource.Version) (resource.Object, error) {
	obj, ok := in.(resource.Object)
	if !ok {
		return nil, fmt.Errorf("%T has no metadata", in)
	}
	merged, isUnstructured := in.(*unstructured.Unstructured)
	made := v.New()
	if _, custom := made.(*unstructured.Unstructured); !isUnstructured || custom {
		return obj, nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(merged.Object, made); err != nil {
		return nil, err
	}
	return made, nil
}

// Default implements runtime.ObjectDefaulter.
func (c conversion) Default(in runtime.Object) {
	if obj, ok := in.(resource.Object); ok {
		c.version.Default(obj)
	}
}

// New implements runtime.ObjectCreater.
func (c conversion) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	if v := c.find(kind.GroupVersion()); v != nil {
		return v.New(), nil
	}
	return nil, runtime.NewNotRegisteredErrForKind(c.resource.Plural, kind)
}
