package crd

import (
	"fmt"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxDefaulted bounds the bytes that the defaults of a schema may add to an
// object, as many as a client may send. Without a bound a default of a few
// hundred kilobytes below a list multiplies by the list's items, each of which
// takes a client three bytes.
const maxDefaulted = 3 << 20

// leastDefault is what a default takes besides its value.
const leastDefault = 64

// tooMuch is the refusal of an object with too many defaults.
func tooMuch() *field.Error {
	return field.Forbidden(field.NewPath("spec"), fmt.Sprintf("the defaults of the schema would add more than %d bytes to the object", maxDefaulted))
}

// multiplies says that a schema has defaults that an object can have more
// than once: those below lists and maps.
func multiplies(s *structuralschema.Structural, within bool) bool {
	if s == nil {
		return false
	}
	if within && s.Default.Object != nil || multiplies(s.Items, true) || s.AdditionalProperties != nil && multiplies(s.AdditionalProperties.Structural, true) {
		return true
	}
	for name := range s.Properties {
		p := s.Properties[name]
		if multiplies(&p, within) {
			return true
		}
	}
	return false
}

// room is how many bytes more defaults may add.
type room int

// fill takes the room that a value's defaults need; false says that there is
// not enough. It follows what defaulting does (structural schemas' Default).
func (r *room) fill(value any, s *structuralschema.Structural) bool {
	if s == nil {
		return true
	}
	switch v := value.(type) {
	case map[string]any:
		for name := range s.Properties {
			p := s.Properties[name]
			if inner, found := v[name]; !found && !r.insert(&p) || found && !r.replace(inner, &p) {
				return false
			}
		}
		if s.AdditionalProperties == nil {
			return true
		}
		for name, inner := range v {
			if _, known := s.Properties[name]; !known && !r.replace(inner, s.AdditionalProperties.Structural) {
				return false
			}
		}
	case []any:
		for _, inner := range v {
			if !r.replace(inner, s.Items) {
				return false
			}
		}
	}
	return true
}

// replace fills a value that is there, or a null that its default replaces.
func (r *room) replace(value any, s *structuralschema.Structural) bool {
	if value == nil && s != nil && !s.Nullable {
		return r.insert(s)
	}
	return r.fill(value, s)
}

// insert takes the room of a default and of what defaults it gets itself.
func (r *room) insert(s *structuralschema.Structural) bool {
	if s.Default.Object == nil {
		return true
	}
	*r -= room(leastDefault + bytesOf(s.Default.Object))
	return *r >= 0 && r.fill(s.Default.Object, s)
}

// bytesOf is about how many bytes a value takes.
func bytesOf(value any) int {
	total := 8
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			total += len(name) + bytesOf(inner)
		}
	case []any:
		for _, inner := range v {
			total += bytesOf(inner)
		}
	case string:
		total += len(v)
	}
	return total
}
