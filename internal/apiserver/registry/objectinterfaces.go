package registry

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/coracle-io/coracle/internal/amount"
	"github.com/coracle-io/coracle/internal/resource"
)

// Registry implements admission.ObjectInterfaces. It gives admission plugins
// access to the versions in which its resources are served. Kinds that are no
// resources, such as Scale and Eviction, come from client-go's scheme.

// GetObjectCreater implements admission.ObjectInterfaces.
func (g *Registry) GetObjectCreater() runtime.ObjectCreater { return kindMap{g} }

// GetObjectTyper implements admission.ObjectInterfaces.
func (g *Registry) GetObjectTyper() runtime.ObjectTyper { return kindMap{g} }

// GetObjectDefaulter implements admission.ObjectInterfaces.
func (g *Registry) GetObjectDefaulter() runtime.ObjectDefaulter { return kindMap{g} }

// GetObjectConvertor implements admission.ObjectInterfaces.
func (g *Registry) GetObjectConvertor() runtime.ObjectConvertor { return kindMap{g} }

// ResourceOf returns the plural name of the resource that has a kind, and
// whether its objects are in namespaces. ok is false if the kind is not served.
func (g *Registry) ResourceOf(kind schema.GroupVersionKind) (plural string, namespaced, ok bool) {
	e := g.Routes().ofKind(kind)
	if e == nil {
		return "", false, false
	}
	return e.Resource.Plural, e.Resource.Namespaced, true
}

// GetEquivalentResourceMapper implements admission.ObjectInterfaces.
func (g *Registry) GetEquivalentResourceMapper() runtime.EquivalentResourceMapper { return kindMap{g} }

// kindMap implements the interfaces of runtime for kinds and versions.
type kindMap struct{ registry *Registry }

func (k kindMap) endpoint(kind schema.GroupVersionKind) *Endpoint {
	return k.registry.Routes().ofKind(kind)
}

// New implements runtime.ObjectCreater.
func (k kindMap) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	if e := k.endpoint(kind); e != nil {
		return e.Version.New(), nil
	}
	obj, err := scheme.Scheme.New(kind)
	if err == nil {
		obj.GetObjectKind().SetGroupVersionKind(kind)
	}
	return obj, err
}

// ObjectKinds implements runtime.ObjectTyper.
func (k kindMap) ObjectKinds(obj runtime.Object) ([]schema.GroupVersionKind, bool, error) {
	if kind := obj.GetObjectKind().GroupVersionKind(); !kind.Empty() {
		return []schema.GroupVersionKind{kind}, false, nil
	}
	return scheme.Scheme.ObjectKinds(obj)
}

// Recognizes implements runtime.ObjectTyper.
func (k kindMap) Recognizes(kind schema.GroupVersionKind) bool {
	return k.endpoint(kind) != nil || scheme.Scheme.Recognizes(kind)
}

// Default implements runtime.ObjectDefaulter. An object whose kind, as a webhook
// set it, does not belong to its type gets no defaults.
func (k kindMap) Default(obj runtime.Object) {
	e := k.endpoint(obj.GetObjectKind().GroupVersionKind())
	if o, ok := obj.(resource.Object); ok && e != nil && reflect.TypeOf(o) == reflect.TypeOf(e.Version.New()) {
		e.Version.Default(o)
	}
}

// ConvertToVersion implements runtime.ObjectConvertor.
func (k kindMap) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	kind := in.GetObjectKind().GroupVersionKind()
	wanted, ok := target.KindForGroupVersionKinds([]schema.GroupVersionKind{kind})
	if !ok {
		return nil, fmt.Errorf("%s is not served in %s", kind.Kind, target.Identifier())
	}
	return k.convert(in, wanted)
}

// convert converts an object to another version. The result has the type that
// New returns for the wanted kind, whatever the type of in.
func (k kindMap) convert(in runtime.Object, wanted schema.GroupVersionKind) (runtime.Object, error) {
	in, err := k.toTyped(in)
	if err != nil {
		return nil, err
	}
	kind := in.GetObjectKind().GroupVersionKind()
	if kind == wanted {
		return in, nil
	}
	from, to := k.endpoint(kind), k.endpoint(wanted)
	obj, ok := in.(resource.Object)
	switch {
	case to != nil && ok && to.Version.Convert != nil && kind.GroupKind() == wanted.GroupKind():
		return to.Version.Convert(obj)
	case from == nil || to == nil || !ok || from.Resource != to.Resource:
		return nil, fmt.Errorf("converting %s to %s: unknown conversion", kind, wanted)
	case reflect.TypeOf(obj) != reflect.TypeOf(from.Version.New()):
		return nil, fmt.Errorf("converting a %T that says to be %s to %s: unknown conversion", obj, kind, wanted)
	}
	return to.Version.FromHub(from.Version.ToHub(obj)), nil
}

// toTyped converts an unstructured object to the Go type of its kind.
// ApplyConfigurations of policies return unstructured objects of every kind.
// Custom resources and unknown kinds have no Go type and stay unstructured.
func (k kindMap) toTyped(in runtime.Object) (runtime.Object, error) {
	u, ok := in.(*unstructured.Unstructured)
	if !ok {
		return in, nil
	}
	out, err := k.New(u.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	if _, ok := out.(*unstructured.Unstructured); ok {
		return in, nil
	}
	if err := amount.CheckValue(out, u.Object); err != nil {
		return nil, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out); err != nil {
		return nil, fmt.Errorf("reading an object as %s: %w", u.GroupVersionKind(), err)
	}
	return out, nil
}

// Convert implements runtime.ObjectConvertor. It sets out to in, converted to
// the version of out.
func (k kindMap) Convert(in, out, _ any) error {
	from, ok := in.(runtime.Object)
	to, toOK := out.(runtime.Object)
	if !ok || !toOK {
		return fmt.Errorf("converting %T to %T: not objects", in, out)
	}
	if u, ok := out.(*unstructured.Unstructured); ok {
		return k.toUnstructured(u, from)
	}
	converted, err := k.convert(from, to.GetObjectKind().GroupVersionKind())
	if err != nil {
		return err
	}
	return assign(converted, to)
}

// toUnstructured sets out to from, converted to the version of out. Fields
// that a webhook or policy added and that the schema does not have are
// dropped, as they are from clients' objects.
func (k kindMap) toUnstructured(out *unstructured.Unstructured, from runtime.Object) error {
	wanted := out.GroupVersionKind()
	from = from.DeepCopyObject()
	// An object of another kind of the group is not converted, so that
	// validation reports the wrong kind.
	if have := from.GetObjectKind().GroupVersionKind(); !wanted.Empty() && have.GroupVersion() != wanted.GroupVersion() {
		converted, err := k.convert(from, wanted)
		if err != nil {
			return err
		}
		from = converted
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(from)
	if err != nil {
		return err
	}
	if e := k.endpoint(wanted); e != nil && e.Version.Coerce != nil {
		if _, err := e.Version.Coerce(&unstructured.Unstructured{Object: content}); err != nil {
			return err
		}
	}
	out.Object = content
	return nil
}

// ConvertFieldLabel implements runtime.ObjectConvertor.
func (k kindMap) ConvertFieldLabel(kind schema.GroupVersionKind, label, value string) (string, string, error) {
	if e := k.endpoint(kind); e != nil {
		field, err := e.FieldLabel(label)
		return field, value, err
	}
	return runtime.DefaultMetaV1FieldSelectorConversion(label, value)
}

// EquivalentResourcesFor implements runtime.EquivalentResourceMapper.
func (k kindMap) EquivalentResourcesFor(r schema.GroupVersionResource, subresource string) []schema.GroupVersionResource {
	table := k.registry.Routes()
	e := table.Find(r.GroupVersion(), r.Resource)
	if e == nil {
		return nil
	}
	var all []schema.GroupVersionResource
	for i := range e.Resource.Versions {
		other := table.Find(e.Resource.Versions[i].GroupVersion, r.Resource)
		if other != nil && (subresource == "" || other.Resource.Subresource(subresource) != nil) {
			all = append(all, other.GVR())
		}
	}
	return all
}

// KindFor implements runtime.EquivalentResourceMapper.
func (k kindMap) KindFor(r schema.GroupVersionResource, subresource string) schema.GroupVersionKind {
	e := k.registry.Routes().Find(r.GroupVersion(), r.Resource)
	if e == nil {
		return schema.GroupVersionKind{}
	}
	if subresource == "" {
		return e.GVK()
	}
	sub := e.Resource.Subresource(subresource)
	switch {
	case sub == nil:
		return schema.GroupVersionKind{}
	case sub.Kind.Empty():
		return e.GVK()
	}
	return sub.Kind
}

// assign copies *from to *to. Both must be pointers of the same type.
func assign(from, to any) error {
	f, t := reflect.ValueOf(from), reflect.ValueOf(to)
	if f.Kind() != reflect.Pointer || f.Type() != t.Type() {
		return fmt.Errorf("converting %T to %T: different types", from, to)
	}
	t.Elem().Set(f.Elem())
	return nil
}
