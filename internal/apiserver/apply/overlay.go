package apply

import (
	"crypto/sha256"
	"maps"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource"
)

// Configurations that only set entries of maps of strings (labels, annotations,
// the data of a config map) are overlaid on the live object:
//
//	managers before, manager, which entries exist and are equal ──► managers after
//
// The effect on the managers is cached as for updates. The library merges the
// first time, and whenever entries are removed.

// overlay is such a configuration, with the part on which its outcome depends.
type overlay struct {
	maps []overlaidMap
	write
}

type overlaidMap struct {
	index   []int // index of the field in the object
	entries map[string]any
}

// overlay returns the overlay of a configuration; ok is false if it is no such
// configuration.
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
	o.before = before
	return o, o.describe(live, manager, force) && len(o.maps) > 0
}

// in returns the map of an object; ok is false if it is not a map of strings.
func (m *overlaidMap) in(obj resource.Object) (there *map[string]string, ok bool) {
	there, ok = reflect.ValueOf(obj).Elem().FieldByIndex(m.index).Addr().Interface().(*map[string]string)
	return there, ok
}

// field returns a field of a structure; nil if there is none.
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

// add adds the entries of one field, which is within another.
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

// The states of a configuration's entry in the live object.
const (
	absentEntry byte = iota
	sameEntryThere
	otherEntry
)

// describe sets the key of the outcome. It returns false if it cannot be
// determined.
func (o *overlay) describe(live resource.Object, manager string, force bool) bool {
	d := differences.Get().(*difference)
	defer differences.Put(d)
	d.reset()
	d.out = append(d.out, "apply"...)
	d.out = appendText(d.out, manager)
	if force {
		d.out = append(d.out, '!')
	}
	for i := range o.before {
		d.addManager(&o.before[i])
	}
	out := append(d.out, end)
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
	o.identities = d.rank()
	o.key = sha256.Sum256(d.out)
	return !d.unknown
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

// cache caches the outcome of a merge if it only overlaid the configuration:
// the manager gave up no fields that it had applied before.
func (t *tracker) cache(o overlay, live, merged resource.Object, manager string) {
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
		if made, ok := outcomeOf(o.write, after); ok {
			t.outcomes.put(o.key, made)
		}
	}
}
