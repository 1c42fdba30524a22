package crd

import (
	"fmt"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxDefaulted bounds the bytes that the defaults of a schema may add to an
// object, to the size that a client may send. Without a bound, a default of
// several hundred kilobytes would be repeated for each item of a list, for
// which a client sends three bytes.
const maxDefaulted = 3 << 20

// defaultOverhead is the size of a default besides its value.
const defaultOverhead = 64

// tooManyDefaults is the error for an object with too many defaults.
func tooManyDefaults() *field.Error {
	return field.Forbidden(field.NewPath("spec"), fmt.Sprintf("the defaults of the schema would add more than %d bytes to the object", maxDefaulted))
}

// multiplies reports whether an object can have defaults of a schema more than
// once: those below lists and maps.
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

// room is how many more bytes defaults may add.
type room int

// fill subtracts the size of a value's defaults; false means that they exceed
// the room. It follows the defaulting of structural schemas.
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

// replace subtracts the size of the defaults of an existing value, or of a null
// that its default replaces.
func (r *room) replace(value any, s *structuralschema.Structural) bool {
	if value == nil && s != nil && !s.Nullable {
		return r.insert(s)
	}
	return r.fill(value, s)
}

// insert subtracts the size of a default and of its own defaults.
func (r *room) insert(s *structuralschema.Structural) bool {
	if s.Default.Object == nil {
		return true
	}
	*r -= room(defaultOverhead + bytesOf(s.Default.Object))
	return *r >= 0 && r.fill(s.Default.Object, s)
}

// bytesOf returns the approximate size of a value in bytes.
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
