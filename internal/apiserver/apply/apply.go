// Package apply implements server-side apply (KEP-555): it tracks the managers
// of fields and merges applied configurations. k8s.io/apimachinery does the
// merging. This package provides the schemas, which it reads at the first use
// of a group version, and the conversions.
package apply

import (
	"fmt"
	"reflect"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/resource"
)

// Schemas returns the OpenAPI v3 schemas of a group version by definition name.
// If there are none, the types of fields are deduced.
type Schemas func(gv schema.GroupVersion) (map[string]*spec.Schema, error)

// Managers implements registry.FieldManagers.
type Managers struct {
	schemas    Schemas
	trackers   sync.Map   // registry.ManagedKind to *tracker
	mu         sync.Mutex // guards converters
	converters map[schema.GroupVersion]managedfields.TypeConverter
}

var _ registry.FieldManagers = (*Managers)(nil)

// New returns Managers that read the schemas of a group version when it is
// first written.
func New(schemas Schemas) *Managers {
	return &Managers{schemas: schemas, converters: map[schema.GroupVersion]managedfields.TypeConverter{}}
}

// tracker tracks the fields of objects of one ManagedKind.
type tracker struct {
	fields      *managedfields.FieldManager
	shape       *shape // of the version's objects; nil if only the library can compare them
	version     *resource.Version
	conversion  conversion
	root        *typed.TypedValue // an empty object; nil if there is no type for it
	subresource string
	outcomes    outcomes
}

// Update implements registry.FieldManagers. If tracking fails, the managers
// stay as they were. It returns an error only if tracking would take too long.
func (m *Managers) Update(k registry.ManagedKind, live, obj resource.Object, manager string) error {
	t, err := m.tracker(k)
	if err != nil {
		keepManagers(live, obj)
		return nil
	}
	before := live
	if before == nil {
		before = k.Resource.Hub().New()
	}
	err = t.update(before, obj, manager)
	if apierrors.IsRequestEntityTooLargeError(err) {
		return err
	}
	if err != nil {
		keepManagers(live, obj)
	}
	return nil
}

func (t *tracker) update(live, obj resource.Object, manager string) error {
	if err := sortOwners(live, obj); err != nil {
		return err
	}
	w, described := t.describe(live, obj, manager)
	if described {
		if known, ok := t.outcomes.get(w.key); ok {
			obj.SetManagedFields(known.managers(w))
			return nil
		}
	}
	if err := t.checkUpdate(live, obj); err != nil {
		return err
	}
	updated, err := t.fields.Update(live, obj, manager)
	if err != nil {
		return err
	}
	after := updated.(metav1.Object).GetManagedFields()
	obj.SetManagedFields(after)
	if described && decodable(w.before) {
		if made, ok := outcomeOf(w, after); ok {
			t.outcomes.put(w.key, made)
		}
	}
	return nil
}

func keepManagers(live, obj resource.Object) {
	if live == nil {
		obj.SetManagedFields(nil)
		return
	}
	obj.SetManagedFields(live.GetManagedFields())
}

// KeepTimes implements registry.FieldManagers.
func (m *Managers) KeepTimes(live, obj resource.Object) {
	before, after := live.GetManagedFields(), obj.GetManagedFields()
	if len(before) == 0 || len(after) == 0 {
		return
	}
	kept := slices.Clone(after)
	for i := range kept {
		for j := range before {
			if sameEntry(&before[j], &kept[i]) {
				kept[i].Time = before[j].Time
				break
			}
		}
	}
	obj.SetManagedFields(kept)
}

// sameEntry reports whether two entries are equal except for their times.
func sameEntry(a, b *metav1.ManagedFieldsEntry) bool {
	if !sameManager(a, b) || a.FieldsType != b.FieldsType || (a.FieldsV1 == nil) != (b.FieldsV1 == nil) {
		return false
	}
	return a.FieldsV1 == b.FieldsV1 || a.FieldsV1.Equal(*b.FieldsV1)
}

// Apply implements registry.FieldManagers.
func (m *Managers) Apply(k registry.ManagedKind, live resource.Object, configuration map[string]any, manager string, force bool) (resource.Object, error) {
	t, err := m.tracker(k)
	if err != nil {
		return nil, err
	}
	if live == nil {
		return t.merge(k.Resource.Hub().New(), configuration, manager, force)
	}
	if k.Version.Convert != nil { // the result is live itself if the configuration changes nothing
		if live, err = k.Version.From(live); err != nil {
			return nil, err
		}
	}
	return t.apply(live, configuration, manager, force)
}

func (m *Managers) tracker(k registry.ManagedKind) (*tracker, error) {
	if known, ok := m.trackers.Load(k); ok {
		return known.(*tracker), nil
	}
	types, err := m.converter(k.Version.GroupVersion)
	if err != nil {
		return nil, err
	}
	c := conversion{resource: k.Resource, version: k.Version}
	fields, err := managedfields.NewDefaultCRDFieldManager(types, c, c, c,
		k.Version.WithKind(k.Resource.Kind), k.Resource.Hub().GroupVersion, k.Subresource, resetFields(k))
	if err != nil {
		return nil, fmt.Errorf("track fields of %s: %w", k.Resource.Plural, err)
	}
	made := &tracker{fields: fields, version: k.Version, conversion: c, root: rootOf(types, k.Version, k.Resource.Kind), subresource: k.Subresource}
	if sample := k.Version.New(); k.Version.Hub || k.Version.Convert == nil { // conversion by a webhook is not repeated
		if value, err := types.ObjectToTyped(sample, typed.AllowDuplicates); err == nil {
			made.shape = shapeOf(value, reflect.TypeOf(sample))
		}
	}
	known, _ := m.trackers.LoadOrStore(k, made)
	return known.(*tracker), nil
}

// resetFields returns the fields that an endpoint ignores. Writes through it do
// not gain ownership of them: the status in a write of the object or of a
// namespace's finalizers; the spec in a write of the status, and there for
// custom resources also the metadata.
func resetFields(k registry.ManagedKind) map[fieldpath.APIVersion]fieldpath.Filter {
	ignored := fieldpath.NewSet()
	switch {
	case k.Subresource == "" && k.Resource.Subresource("status") != nil, k.Subresource == "finalize":
		ignored.Insert(fieldpath.MakePathOrDie("status"))
	case k.Subresource == "status":
		ignored.Insert(fieldpath.MakePathOrDie("spec"))
		if k.Version.Coerce != nil {
			ignored.Insert(fieldpath.MakePathOrDie("metadata"))
		}
	default:
		return nil
	}
	filters := map[fieldpath.APIVersion]fieldpath.Filter{}
	for i := range k.Resource.Versions {
		filters[fieldpath.APIVersion(k.Resource.Versions[i].GroupVersion.String())] = fieldpath.NewExcludeSetFilter(ignored)
	}
	return filters
}

// converter returns the type converter of a group version.
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
	made = ordered{made}
	m.converters[gv] = made
	return made, nil
}

// Forget drops the cached types of a group version whose schemas have changed.
func (m *Managers) Forget(gv schema.GroupVersion) {
	m.mu.Lock()
	delete(m.converters, gv)
	m.mu.Unlock()
	m.trackers.Range(func(k, _ any) bool {
		if k.(registry.ManagedKind).Version.GroupVersion == gv {
			m.trackers.Delete(k)
		}
		return true
	})
}
