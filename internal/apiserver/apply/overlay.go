package apply

import (
	"crypto/sha256"
	"maps"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource"
)

// Configurations that only set entries of maps of strings (labels,
// annotations, the data of a config map) are laid over the live object:
//
//	managers before, manager, which entries are there and the same ──► managers after
//
// What becomes of the managers is remembered as for plain writes. The first
// time, and whenever entries are to be removed, the merging decides.

// overlay is such a configuration, and what its outcome depends on.
type overlay struct {
	maps []overlaidMap
	key  outcomeKey
}

type overlaidMap struct {
	index   []int // of the field in the object
	entries map[string]any
}

// overlay describes a configuration; ok is false if it is not of this kind.
func (t *tracker) overlay(live resource.Object, configuration map[string]any, manager string, force bool) (o overlay, ok bool) {
	before := live.GetManagedFields()
	if !t.foreseeable(before, manager) {
		return o, false
	}
	gvk := t.version.GroupVersion.WithKind(live.GetObjectKind().GroupVersionKind().Kind)
	for name, value := range configuration {
		switch name {
		case "apiVersion":
			ok = value == gvk.GroupVersion().String()
		case "kind":
			ok = value == gvk.Kind
		case "metadata":
			ok = o.addMetadata(t.shape.field(name), live, value)
		default:
			ok = o.add(t.shape.field(name), nil, value)
		}
		if !ok {
			return o, false
		}
	}
	for i := range o.maps {
		if _, ok := o.maps[i].in(live); !ok {
			return o, false
		}
	}
	o.key = o.describe(live, before, manager, force)
	return o, len(o.maps) > 0
}

// in returns the map of an object; ok is false if it is not one of strings.
func (m *overlaidMap) in(obj resource.Object) (there *map[string]string, ok bool) {
	there, ok = reflect.ValueOf(obj).Elem().FieldByIndex(m.index).Addr().Interface().(*map[string]string)
	return there, ok
}

// field finds a field of a structure; nil if there is none.
func (s *shape) field(name string) *fieldShape {
	for i := range s.fields {
		if s.fields[i].entry.JsonName == name {
			return &s.fields[i]
		}
	}
	return nil
}

func (o *overlay) addMetadata(f *fieldShape, live resource.Object, value any) bool {
	metadata, ok := value.(map[string]any)
	if !ok || f == nil {
		return false
	}
	for name, value := range metadata {
		switch name {
		case "name":
			ok = value == live.GetName()
		case "namespace":
			ok = value == live.GetNamespace()
		default:
			ok = o.add(f.shape.field(name), f.index, value)
		}
		if !ok {
			return false
		}
	}
	return true
}

// add takes the entries for one field, which is within another.
func (o *overlay) add(f *fieldShape, within []int, value any) bool {
	entries, ok := value.(map[string]any)
	if !ok || len(entries) == 0 || f == nil || f.shape.form != mapping {
		return false
	}
	for _, entry := range entries {
		if _, ok := entry.(string); !ok {
			return false
		}
	}
	o.maps = append(o.maps, overlaidMap{index: slices.Concat(within, f.index), entries: entries})
	return true
}

// How an entry of a configuration is found in the live object.
const (
	absentEntry byte = iota
	sameEntryThere
	otherEntry
)

// describe makes the key of the outcome.
func (o *overlay) describe(live resource.Object, before []metav1.ManagedFieldsEntry, manager string, force bool) outcomeKey {
	d := differences.Get().(*difference)
	defer differences.Put(d)
	out := append(d.out[:0], "apply"...)
	out = appendText(out, manager)
	if force {
		out = append(out, '!')
	}
	for i := range before {
		out = appendManager(out, &before[i])
	}
	out = append(out, end)
	slices.SortFunc(o.maps, func(a, b overlaidMap) int { return slices.Compare(a.index, b.index) })
	for _, m := range o.maps {
		for _, i := range m.index {
			out = append(out, byte(i))
		}
		there, _ := m.in(live)
		out = append(out, end)
		if *there == nil {
			out = append(out, end)
		}
		for _, key := range slices.Sorted(maps.Keys(m.entries)) {
			state := absentEntry
			if value, found := (*there)[key]; found {
				if state = otherEntry; value == m.entries[key] {
					state = sameEntryThere
				}
			}
			out = append(appendText(out, key), state)
		}
		out = append(out, end)
	}
	d.out = out
	return sha256.Sum256(out)
}

// over returns a copy of the live object with the configuration's entries.
func (o *overlay) over(live resource.Object) resource.Object {
	made := live.DeepCopyObject().(resource.Object)
	for _, m := range o.maps {
		there, _ := m.in(made)
		if *there == nil {
			*there = make(map[string]string, len(m.entries))
		}
		for key, value := range m.entries {
			(*there)[key] = value.(string)
		}
	}
	return made
}

// learn keeps what the merging made of an overlay, if that was nothing but to
// lay it over: the manager gave up nothing that it had applied before.
func (t *tracker) learn(o overlay, live, merged resource.Object, manager string) {
	before, after := live.GetManagedFields(), merged.GetManagedFields()
	applied := func(entries []metav1.ManagedFieldsEntry) *metav1.ManagedFieldsEntry {
		for i := range entries {
			if e := &entries[i]; e.Manager == manager && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == t.subresource {
				return e
			}
		}
		return nil
	}
	was, is := applied(before), applied(after)
	if is == nil || was != nil && !was.FieldsV1.Equal(*is.FieldsV1) || !decodable(before) {
		return
	}
	expected := o.over(live)
	expected.SetManagedFields(after)
	if resource.Same(expected, merged) {
		t.outcomes.put(o.key, outcomeOf(before, after))
	}
}
