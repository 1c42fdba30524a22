package apiserver

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kjson "sigs.k8s.io/json"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// Most patches touch one of an object's outermost fields (metadata, status).
// Such a patch is applied to that part alone:
//
//	object ── copy ─────────────────────────────► object with the new part
//	   └ {"metadata":{...}} ── patch ── decode ──────▲
//
// The result is that of the whole way, which is taken for everything unusual:
// patches of the kind or of unknown fields, directives, and every failure, so
// that messages show the whole object.

// patchedPartly applies the patch to the parts it touches; ok is false if the
// whole way must be taken.
func (q *request) patchedPartly(p *patch, current *watchcache.Entry) (obj resource.Object, ok bool) {
	fields := q.endpoint.fields
	if fields == nil {
		return nil, false
	}
	names, ok := p.touches()
	if !ok {
		return nil, false
	}
	for _, name := range names {
		if _, known := fields[name]; !known {
			return nil, false
		}
	}
	before, err := q.endpoint.codec.Object(current)
	if err != nil {
		return nil, false
	}
	part := q.endpoint.version.New()
	if p.kind == types.StrategicMergePatchType {
		ok = q.mergePart(p, before, names, part)
	} else {
		ok = q.patchPart(p, current, names, part)
	}
	if !ok {
		return nil, false
	}
	next := before.DeepCopyObject().(resource.Object)
	to, from := reflect.ValueOf(next).Elem(), reflect.ValueOf(part).Elem()
	for _, name := range names {
		to.Field(fields[name]).Set(from.Field(fields[name]))
	}
	return next, true
}

// touches lists the outermost fields that a patch reads or writes.
func (p *patch) touches() (names []string, ok bool) {
	if p.kind == types.JSONPatchType {
		return p.operationsTouch()
	}
	var parts map[string]json.RawMessage
	if json.Unmarshal(p.body, &parts) != nil {
		return nil, false
	}
	for name := range parts {
		names = append(names, name)
	}
	return names, len(names) > 0
}

func (p *patch) operationsTouch() (names []string, ok bool) {
	var operations []struct{ Path, From string }
	if json.Unmarshal(p.body, &operations) != nil {
		return nil, false
	}
	seen := map[string]bool{}
	for _, o := range operations {
		for _, path := range []string{o.Path, o.From} {
			rest, absolute := strings.CutPrefix(path, "/")
			name, _, deeper := strings.Cut(rest, "/")
			switch {
			case path == "":
				continue
			case !absolute || !deeper || strings.Contains(name, "~"):
				return nil, false
			case !seen[name]:
				seen[name] = true
				names = append(names, name)
			}
		}
		if o.Path == "" {
			return nil, false
		}
	}
	return names, len(names) > 0
}

// patchPart applies a JSON or merge patch to some of the object's fields and
// decodes them into part.
func (q *request) patchPart(p *patch, current *watchcache.Entry, names []string, part resource.Object) bool {
	data, err := q.endpoint.codec.JSON(current)
	if err != nil {
		return false
	}
	data, ok := extract(data, names)
	if !ok {
		return false
	}
	data, strict, err := p.applyJSON(data)
	if err != nil || len(strict) > 0 {
		return false
	}
	strict, _, err = codec.DecodeJSON(part, q.endpoint.gvk(), data, p.wantsStrict())
	return err == nil && len(strict) == 0
}

// mergePart applies a strategic merge patch to some of the object's fields
// and decodes them into part.
func (q *request) mergePart(p *patch, before resource.Object, names []string, part resource.Object) bool {
	changes := map[string]any{}
	strict, err := kjson.UnmarshalStrict(p.body, &changes)
	if err != nil || len(strict) > 0 {
		return false
	}
	sample := q.endpoint.version.New()
	to, from := reflect.ValueOf(sample).Elem(), reflect.ValueOf(before).Elem()
	for _, name := range names {
		i := q.endpoint.fields[name]
		to.Field(i).Set(from.Field(i))
	}
	original, err := runtime.DefaultUnstructuredConverter.ToUnstructured(sample)
	if err != nil {
		return false
	}
	for name := range original {
		if _, touched := changes[name]; !touched {
			delete(original, name)
		}
	}
	merged, err := strategicpatch.StrategicMergeMapPatch(original, changes, part)
	return err == nil && runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(merged, part, p.wantsStrict()) == nil
}

// outerFields finds the outermost fields of a type by their JSON names; nil
// for types that are not structs of such fields.
func outerFields(obj resource.Object) map[string]int {
	t := reflect.TypeOf(obj).Elem()
	if t.Kind() != reflect.Struct {
		return nil
	}
	fields := map[string]int{}
	for i := range t.NumField() {
		name, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		switch {
		case name != "" && name != "-":
			fields[name] = i
		case t.Field(i).Name != "TypeMeta" && !strings.Contains(options, "inline"):
			return nil
		}
	}
	return fields
}

// extract returns a JSON object with only the named outermost fields of
// another, which the server itself has encoded: without white space and with
// field names that need no escapes.
func extract(object []byte, names []string) (part []byte, ok bool) {
	part = append(make([]byte, 0, len(object)), '{')
	if len(object) < 2 || object[0] != '{' {
		return nil, false
	}
	for at := 1; at < len(object) && object[at] == '"'; {
		colon := bytes.IndexByte(object[at:], ':')
		if colon < 2 {
			return nil, false
		}
		name := string(object[at+1 : at+colon-1])
		end := valueEnd(object, at+colon+1)
		if end >= len(object) {
			return nil, false
		}
		if slices.Contains(names, name) {
			if len(part) > 1 {
				part = append(part, ',')
			}
			part = append(part, object[at:end]...)
		}
		at = end + 1
	}
	return append(part, '}'), true
}

// valueEnd returns where the JSON value that begins at a place ends.
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
