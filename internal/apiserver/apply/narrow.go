package apply

import (
	"cmp"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/coracle-io/coracle/internal/resource"
)

// An apply can change only the fields in the configuration and those that its
// manager applied before. So only the outermost fields that contain these, and
// the metadata, are merged:
//
//	live ─┬─ metadata, touched fields ── merging with the configuration ─┐
//	      └─ everything else ────────────────────────────────────────────┴─► result
//
// The library converts each field to a typed value, compares it, and converts
// it back. For a label of a pod that would be the whole pod.

// narrowed is the outermost fields that an apply may change, as fields of the
// Go type.
type narrowed struct {
	fields []int
	rest   bool // whether there are other fields
}

// narrow returns the fields that an apply may change; ok is false if it is all
// fields.
func (t *tracker) narrow(live resource.Object, configuration map[string]any, manager string) (n narrowed, ok bool) {
	managers := live.GetManagedFields()
	if !t.foreseeable(managers, manager) {
		return n, false
	}
	names := map[string]bool{"metadata": true}
	for name := range configuration {
		names[name] = true
	}
	for i := range managers {
		e := &managers[i]
		if e.Manager != manager || e.Operation != metav1.ManagedFieldsOperationApply || e.Subresource != t.subresource {
			continue
		}
		var owned fieldpath.Set
		if owned.FromJSON(e.FieldsV1.GetRawReader()) != nil {
			return n, false
		}
		owned.Iterate(func(path fieldpath.Path) {
			if len(path) > 0 && path[0].FieldName != nil {
				names[*path[0].FieldName] = true
			}
		})
	}
	for _, f := range t.shape.fields {
		if len(f.index) != 1 {
			continue // kind and apiVersion
		}
		if names[f.entry.JsonName] {
			n.fields = append(n.fields, f.index[0])
			delete(names, f.entry.JsonName)
		} else {
			n.rest = true
		}
	}
	delete(names, "kind")
	delete(names, "apiVersion")
	return n, n.rest && len(names) == 0
}

// foreseeable reports whether the result of an apply depends only on the
// managers and the fields in the configuration. For kubectl's manager it does
// not: the library migrates fields of client-side apply. In a version other
// than the hub's, the fields of the configuration have other names than the
// fields of the live object.
func (t *tracker) foreseeable(before []metav1.ManagedFieldsEntry, manager string) bool {
	return t.shape != nil && t.version.Hub && manager != "kubectl" && len(before) > 0 && t.cacheable(before)
}

// copy copies the narrowed fields from one object to another.
func (n narrowed) copy(to, from resource.Object) {
	target, source := reflect.ValueOf(to).Elem(), reflect.ValueOf(from).Elem()
	for _, i := range n.fields {
		target.Field(i).Set(source.Field(i))
	}
}

// apply merges a configuration into a live object of the same version, and does
// not change live.
func (t *tracker) apply(live resource.Object, configuration map[string]any, manager string, force bool) (resource.Object, error) {
	o, overlaid := t.overlay(live, configuration, manager, force)
	if overlaid {
		if known, ok := t.outcomes.get(o.key); ok {
			made := o.over(live)
			made.SetManagedFields(known.managers(o.write))
			return made, nil
		}
	}
	merged, err := t.applyNarrowly(live, configuration, manager, force)
	if err == nil && overlaid {
		t.cache(o, live, merged, manager)
	}
	return merged, err
}

func (t *tracker) applyNarrowly(live resource.Object, configuration map[string]any, manager string, force bool) (resource.Object, error) {
	n, ok := t.narrow(live, configuration, manager)
	if !ok {
		return t.merge(live.DeepCopyObject().(resource.Object), configuration, manager, force)
	}
	part := t.version.New()
	n.copy(part, live)
	merged, err := t.merge(part.DeepCopyObject().(resource.Object), configuration, manager, force)
	if err != nil {
		return nil, err
	}
	whole := live.DeepCopyObject().(resource.Object)
	n.copy(whole, merged)
	t.version.Default(whole)
	return whole, nil
}

func (t *tracker) merge(live resource.Object, configuration map[string]any, manager string, force bool) (resource.Object, error) {
	if err := cmp.Or(t.checkConfiguration(configuration), t.checkWidth(live)); err != nil {
		return nil, err
	}
	merged, err := t.fields.Apply(live, &unstructured.Unstructured{Object: configuration}, manager, force)
	if err != nil {
		return nil, err
	}
	return merged.(resource.Object), nil
}
