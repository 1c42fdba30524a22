package registry

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"github.com/coracle-io/coracle/internal/amount"
	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// Most patches change one of an object's top-level fields (metadata, status),
// and often one field within it. Such a patch is applied to that part alone:
//
//	object ── copy ─────────────────────────────────────► object with the new part
//	   └ {"metadata":{"labels":{...}}} ── patch ── decode ──────▲
//
// The result is the same as if the whole object was patched, which is the
// fallback for unusual patches (of the kind or of unknown fields, or with
// directives) and for all failures, so that messages show the whole object.

// part is a field of an object that a patch changes: a top-level field, or a
// field within one. index is the index of the Go field.
type part struct {
	name, inner string // "" for the whole top-level field
	index       []int
}

// parts are the parts that one patch changes.
type parts []part

// patchedByParts applies the patch to the parts that it changes. ok is false
// if the whole object must be patched.
func (p patcher) patchedByParts(current *watchcache.Entry) (obj resource.Object, ok bool) {
	if p.q.Endpoint.fields == nil {
		return nil, false
	}
	touched, ok := p.touchedParts(p.q.Endpoint.fields)
	if !ok {
		return nil, false
	}
	before, err := p.q.Endpoint.Codec.Object(current)
	if err != nil {
		return nil, false
	}
	if p.kind != types.JSONPatchType && touched.areStrings(before) {
		next := before.DeepCopyObject().(resource.Object)
		if p.mergeStrings(touched, next) {
			return next, true
		}
	}
	changed := p.q.Endpoint.Version.New()
	if p.kind == types.StrategicMergePatchType {
		ok = p.mergeParts(before, touched, changed)
	} else {
		ok = p.patchParts(current, touched, changed)
	}
	if !ok {
		return nil, false
	}
	next := before.DeepCopyObject().(resource.Object)
	touched.copy(next, changed)
	return next, true
}

// copy copies the parts of one object to another.
func (ps parts) copy(to, from resource.Object) {
	target, source := reflect.ValueOf(to).Elem(), reflect.ValueOf(from).Elem()
	for _, p := range ps {
		target.FieldByIndex(p.index).Set(source.FieldByIndex(p.index))
	}
}

// touchedParts returns the smallest parts that a patch reads or writes. ok is
// false if the parts cannot be determined.
func (p *Patch) touchedParts(known knownFields) (touched parts, ok bool) {
	if p.kind == types.JSONPatchType {
		return p.operationParts(known)
	}
	var outer map[string]json.RawMessage
	if json.Unmarshal(p.body, &outer) != nil {
		return nil, false
	}
	for name, value := range outer {
		f, ok := known[name]
		if !ok {
			return nil, false
		}
		if within, ok := f.partsOf(name, value); ok {
			touched = append(touched, within...)
		} else {
			touched = append(touched, part{name: name, index: f.index})
		}
	}
	return touched, len(touched) > 0
}

// partsOf returns the parts of one top-level field that its patch changes. ok
// is false if that is the whole field.
func (f outerField) partsOf(name string, value json.RawMessage) (touched parts, ok bool) {
	var inner map[string]json.RawMessage
	if f.inner == nil || json.Unmarshal(value, &inner) != nil || len(inner) == 0 {
		return nil, false
	}
	for key := range inner {
		index, known := f.inner[key]
		if !known {
			return nil, false
		}
		touched = append(touched, part{name: name, inner: key, index: index})
	}
	return touched, true
}

func (p *Patch) operationParts(known knownFields) (touched parts, ok bool) {
	var operations []struct{ Path, From string }
	if json.Unmarshal(p.body, &operations) != nil {
		return nil, false
	}
	for _, o := range operations {
		for _, path := range []string{o.Path, o.From} {
			rest, absolute := strings.CutPrefix(path, "/")
			name, _, deeper := strings.Cut(rest, "/")
			f, ok := known[name]
			switch {
			case path == "":
				continue
			case !absolute || !deeper || !ok:
				return nil, false
			case !slices.ContainsFunc(touched, func(p part) bool { return p.name == name }):
				touched = append(touched, part{name: name, index: f.index})
			}
		}
		if o.Path == "" {
			return nil, false
		}
	}
	return touched, len(touched) > 0
}

// patchParts applies a JSON or merge patch to some of the object's fields and
// decodes them into changed.
func (p patcher) patchParts(current *watchcache.Entry, touched parts, changed resource.Object) bool {
	data, err := p.q.Endpoint.Codec.JSON(current)
	if err != nil {
		return false
	}
	data, ok := touched.extract(data)
	if !ok {
		return false
	}
	data, strict, err := p.applyJSON(p.q.Context, data)
	if err != nil || len(strict) > 0 {
		return false
	}
	strict, _, err = codec.DecodeJSON(changed, p.q.Endpoint.GVK(), data, p.wantsStrict())
	return err == nil && len(strict) == 0
}

// mergeParts applies a strategic merge patch to some of the object's fields
// and decodes them into changed.
func (p patcher) mergeParts(before resource.Object, touched parts, changed resource.Object) bool {
	changes := map[string]any{}
	strict, err := kjson.UnmarshalStrict(p.body, &changes)
	if err != nil || len(strict) > 0 {
		return false
	}
	sample := p.q.Endpoint.Version.New()
	touched.copy(sample, before)
	original, err := runtime.DefaultUnstructuredConverter.ToUnstructured(sample)
	if err != nil {
		return false
	}
	for name := range original {
		if _, touched := changes[name]; !touched {
			delete(original, name)
		}
	}
	if exceedsMergeLimit(original, changes, changed) {
		return false
	}
	merged, err := strategicMerge(original, changes, changed)
	if err != nil || amount.CheckValue(changed, merged) != nil {
		return false
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(merged, changed, p.wantsStrict()) == nil
}

// knownFields are the top-level fields of a type by their JSON names.
type knownFields map[string]outerField

type outerField struct {
	index []int
	inner map[string][]int // the fields within; nil if they cannot be patched separately
}

// outerFields returns the top-level fields of a type, or nil for types that
// are not structs of fields with JSON names.
func outerFields(obj resource.Object) knownFields {
	t := reflect.TypeOf(obj).Elem()
	if t.Kind() != reflect.Struct {
		return nil
	}
	found := knownFields{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name != "" && name != "-":
			found[name] = outerField{index: f.Index, inner: innerFields(f)}
		case f.Name != "TypeMeta" && !strings.Contains(options, "inline"):
			return nil
		}
	}
	return found
}

// innerFields returns the fields of a field that is a struct.
func innerFields(outer reflect.StructField) map[string][]int {
	t := outer.Type
	if t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil
	}
	found := map[string][]int{}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name == "" || name == "-" {
			return nil
		}
		found[name] = append(slices.Clone(outer.Index), i)
	}
	return found
}

// extract returns a JSON object with only some parts of another one. The
// other one must be encoded by this server: without white space, and with
// field names that need no escapes.
func (ps parts) extract(object []byte) (part []byte, ok bool) {
	part = append(make([]byte, 0, 256), '{')
	ok = eachField(object, func(name string, field, value []byte) bool {
		whole, some := ps.within(name)
		switch {
		case whole:
			part = append(comma(part), field...)
		case some:
			part = append(comma(part), field[:len(field)-len(value)]...)
			part = append(part, '{')
			inner := eachField(value, func(key string, field, _ []byte) bool {
				if ps.contain(name, key) {
					part = append(comma(part), field...)
				}
				return true
			})
			part = append(part, '}')
			return inner
		}
		return true
	})
	return append(part, '}'), ok
}

func comma(out []byte) []byte {
	if out[len(out)-1] != '{' {
		return append(out, ',')
	}
	return out
}

// within reports whether a top-level field is a part, and whether it contains
// parts.
func (ps parts) within(name string) (whole, some bool) {
	for i := range ps {
		if ps[i].name == name {
			if ps[i].inner == "" {
				return true, true
			}
			some = true
		}
	}
	return false, some
}

func (ps parts) contain(name, inner string) bool {
	return slices.ContainsFunc(ps, func(p part) bool { return p.name == name && p.inner == inner })
}

// eachField calls visit with each field of a JSON object, and the field's
// value. It returns false if the object is not encoded as this server does
// it, or if visit returned false.
func eachField(object []byte, visit func(name string, field, value []byte) bool) bool {
	if len(object) < 2 || object[0] != '{' {
		return false
	}
	for at := 1; at < len(object) && object[at] == '"'; {
		colon := bytes.IndexByte(object[at:], ':')
		if colon < 2 {
			return false
		}
		end := valueEnd(object, at+colon+1)
		if end >= len(object) || !visit(string(object[at+1:at+colon-1]), object[at:end], object[at+colon+1:end]) {
			return false
		}
		at = end + 1
	}
	return true
}

// valueEnd returns the end of the JSON value that starts at an index.
func valueEnd(data []byte, at int) int {
	depth, inString := 0, false
	for ; at < len(data); at++ {
		switch c := data[at]; {
		case inString && c == '\\':
			at++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
		case (c == '}' || c == ']' || c == ',') && depth == 0:
			return at
		case c == '}' || c == ']':
			depth--
		}
	}
	return at
}
