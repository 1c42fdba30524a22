// Package apply tracks which manager owns which fields of an object and
// merges applied configurations by that (server-side apply, KEP-555). The
// merging itself is k8s.io/apimachinery's; this package gives it schemas, by
// group version and on first use, and conversions.
package apply

import (
	"fmt"
	"reflect"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/coracle-io/coracle/internal/apiserver"
	"github.com/coracle-io/coracle/internal/resource"
)

// Schemas returns the OpenAPI v3 schemas of a group version by definition
// name; none means that its fields are merged as they come.
type Schemas func(gv schema.GroupVersion) (map[string]*spec.Schema, error)

// Managers implements apiserver.FieldManagers.
type Managers struct {
	schemas    Schemas
	managers   sync.Map   // apiserver.ManagedKind to *managedfields.FieldManager
	mu         sync.Mutex // guards converters
	converters map[schema.GroupVersion]managedfields.TypeConverter
}

var _ apiserver.FieldManagers = (*Managers)(nil)

// New returns managers that read schemas when a group version is first written.
func New(schemas Schemas) *Managers {
	return &Managers{schemas: schemas, converters: map[schema.GroupVersion]managedfields.TypeConverter{}}
}

// Update implements apiserver.FieldManagers. Where tracking fails the
// ownership stays as it was.
func (m *Managers) Update(k apiserver.ManagedKind, live, obj resource.Object, manager string) {
	fields, err := m.manager(k)
	if err != nil {
		keepManagers(live, obj)
		return
	}
	if live == nil {
		live = k.Resource.Hub().New()
	}
	updated, err := fields.Update(live, obj, manager)
	if err != nil {
		keepManagers(live, obj)
		return
	}
	obj.SetManagedFields(updated.(metav1.Object).GetManagedFields())
}

func keepManagers(live, obj resource.Object) {
	if live == nil {
		obj.SetManagedFields(nil)
		return
	}
	obj.SetManagedFields(live.GetManagedFields())
}

// KeepTimes implements apiserver.FieldManagers.
func (m *Managers) KeepTimes(live, obj resource.Object) {
	before, after := live.GetManagedFields(), obj.GetManagedFields()
	if len(before) == 0 || len(after) == 0 {
		return
	}
	kept := make([]metav1.ManagedFieldsEntry, len(after))
	copy(kept, after)
	for i := range kept {
		for j := range before {
			same := before[j]
			same.Time = kept[i].Time
			if reflect.DeepEqual(same, kept[i]) {
				kept[i].Time = before[j].Time
				break
			}
		}
	}
	obj.SetManagedFields(kept)
}

// Apply implements apiserver.FieldManagers.
func (m *Managers) Apply(k apiserver.ManagedKind, live resource.Object, configuration map[string]any, manager string, force bool) (resource.Object, error) {
	fields, err := m.manager(k)
	if err != nil {
		return nil, err
	}
	if live == nil {
		live = k.Resource.Hub().New()
	} else {
		live = live.DeepCopyObject().(resource.Object)
	}
	merged, err := fields.Apply(live, &unstructured.Unstructured{Object: configuration}, manager, force)
	if err != nil {
		return nil, err
	}
	return merged.(resource.Object), nil
}

func (m *Managers) manager(k apiserver.ManagedKind) (*managedfields.FieldManager, error) {
	if known, ok := m.managers.Load(k); ok {
		return known.(*managedfields.FieldManager), nil
	}
	types, err := m.converter(k.Version.GroupVersion)
	if err != nil {
		return nil, err
	}
	c := conversion{resource: k.Resource, version: k.Version}
	made, err := managedfields.NewDefaultCRDFieldManager(types, c, c, c,
		k.Version.WithKind(k.Resource.Kind), k.Resource.Hub().GroupVersion, k.Subresource, resetFields(k))
	if err != nil {
		return nil, fmt.Errorf("track fields of %s: %w", k.Resource.Plural, err)
	}
	m.managers.Store(k, made)
	return made, nil
}

// resetFields are those that an endpoint ignores, so that nobody comes to own
// them by it: the status in a write of the object, all but the status in a
// write of the status.
func resetFields(k apiserver.ManagedKind) map[fieldpath.APIVersion]fieldpath.Filter {
	ignored := ""
	switch {
	case k.Subresource == "" && k.Resource.Subresource("status") != nil:
		ignored = "status"
	case k.Subresource == "status":
		ignored = "spec"
	default:
		return nil
	}
	set := fieldpath.NewSet(fieldpath.MakePathOrDie(ignored))
	filters := map[fieldpath.APIVersion]fieldpath.Filter{}
	for i := range k.Resource.Versions {
		filters[fieldpath.APIVersion(k.Resource.Versions[i].GroupVersion.String())] = fieldpath.NewExcludeSetFilter(set)
	}
	return filters
}

// converter returns the types of a group version.
func (m *Managers) converter(gv schema.GroupVersion) (managedfields.TypeConverter, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known, ok := m.converters[gv]; ok {
		return known, nil
	}
	schemas, err := m.schemas(gv)
	if err != nil {
		return nil, fmt.Errorf("schemas of %v: %w", gv, err)
	}
	made := managedfields.NewDeducedTypeConverter()
	if len(schemas) > 0 {
		if made, err = managedfields.NewTypeConverter(schemas, false); err != nil {
			return nil, fmt.Errorf("types of %v: %w", gv, err)
		}
	}
	m.converters[gv] = made
	return made, nil
}

// Forget drops what is known of a group version whose schemas have changed.
func (m *Managers) Forget(gv schema.GroupVersion) {
	m.mu.Lock()
	delete(m.converters, gv)
	m.mu.Unlock()
	m.managers.Range(func(k, _ any) bool {
		if k.(apiserver.ManagedKind).Version.GroupVersion == gv {
			m.managers.Delete(k)
		}
		return true
	})
}
