package admission

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-io/coracle/internal/resource"
)

// newObjectInterfaces returns how webhooks and policies create, default and
// convert the objects of a list of resources.
func newObjectInterfaces(scheme *runtime.Scheme, resources []*resource.Resource) admission.ObjectInterfaces {
	k := &kinds{Scheme: scheme, versions: map[schema.GroupVersionKind]*resource.Version{}, equivalent: runtime.NewEquivalentResourceRegistry()}
	for _, r := range resources {
		for i := range r.Versions {
			v := &r.Versions[i]
			k.versions[v.WithKind(r.Kind)] = v
			k.equivalent.RegisterKindFor(v.WithResource(r.Plural), "", v.WithKind(r.Kind))
			for _, s := range r.Subresources {
				kind := s.Kind
				if kind.Empty() {
					kind = v.WithKind(r.Kind)
				}
				k.equivalent.RegisterKindFor(v.WithResource(r.Plural), s.Name, kind)
			}
		}
	}
	return k
}

type kinds struct {
	*runtime.Scheme
	versions   map[schema.GroupVersionKind]*resource.Version
	equivalent runtime.EquivalentResourceRegistry
}

func (k *kinds) GetObjectCreater() runtime.ObjectCreater     { return k.Scheme }
func (k *kinds) GetObjectTyper() runtime.ObjectTyper         { return k.Scheme }
func (k *kinds) GetObjectDefaulter() runtime.ObjectDefaulter { return k }
func (k *kinds) GetObjectConvertor() runtime.ObjectConvertor { return k }
func (k *kinds) GetEquivalentResourceMapper() runtime.EquivalentResourceMapper {
	return k.equivalent
}

// Default implements runtime.ObjectDefaulter.
func (k *kinds) Default(obj runtime.Object) {
	v, ok := k.versions[obj.GetObjectKind().GroupVersionKind()]
	if o, isObject := obj.(resource.Object); ok && isObject && v.Default != nil {
		v.Default(o)
	}
}

// Convert implements runtime.ObjectConvertor for out of a served version.
func (k *kinds) Convert(in, out, _ any) error {
	from, ok := in.(runtime.Object)
	to, ok2 := out.(runtime.Object)
	if !ok || !ok2 {
		return fmt.Errorf("cannot convert a %T to a %T", in, out)
	}
	if gv := to.GetObjectKind().GroupVersionKind().GroupVersion(); !gv.Empty() && reflect.TypeOf(in) != reflect.TypeOf(out) {
		converted, err := k.ConvertToVersion(from, gv)
		if err != nil {
			return err
		}
		from = converted
	}
	source, target := reflect.ValueOf(from), reflect.ValueOf(to)
	if source.Type() != target.Type() || source.Kind() != reflect.Pointer {
		return fmt.Errorf("cannot convert a %T to a %T", in, out)
	}
	target.Elem().Set(source.Elem())
	return nil
}

// ConvertToVersion implements runtime.ObjectConvertor, by way of the hub.
func (k *kinds) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	have := in.GetObjectKind().GroupVersionKind()
	want, ok := target.KindForGroupVersionKinds([]schema.GroupVersionKind{have})
	if !ok {
		return nil, fmt.Errorf("%s cannot be converted to %s", have, target.Identifier())
	}
	if want == have {
		return in, nil
	}
	from, to := k.versions[have], k.versions[want]
	obj, isObject := in.(resource.Object)
	if from == nil || to == nil || !isObject {
		return nil, fmt.Errorf("no conversion from %s to %s", have, want)
	}
	return to.FromHub(from.ToHub(obj)), nil
}

// ConvertFieldLabel implements runtime.ObjectConvertor.
func (k *kinds) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}
