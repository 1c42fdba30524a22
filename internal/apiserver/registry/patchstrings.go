package registry

import (
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"github.com/coracle-io/coracle/internal/resource"
)

// Patches of labels, annotations and the data of config maps are the most
// frequent ones. They are applied without encoding or decoding the object.

// areStrings reports whether the parts are strings and maps of strings.
func (ps parts) areStrings(obj resource.Object) bool {
	object := reflect.ValueOf(obj).Elem()
	for _, p := range ps {
		f := object.FieldByIndex(p.index)
		if _, ok := f.Interface().(map[string]string); !ok && f.Kind() != reflect.String {
			return false
		}
	}
	return true
}

// mergeStrings applies a merge patch, strategic or not, to parts for which
// areStrings is true. If it returns false, obj may be partly changed and must
// be discarded.
func (p *Patch) mergeStrings(touched parts, obj resource.Object) (ok bool) {
	var changes map[string]any
	if strict, err := kjson.UnmarshalStrict(p.body, &changes); err != nil || len(strict) > 0 {
		return false
	}
	object := reflect.ValueOf(obj).Elem()
	for _, part := range touched {
		change := changes[part.name]
		if part.inner != "" {
			outer, isObject := change.(map[string]any)
			if !isObject {
				return false
			}
			change = outer[part.inner]
		}
		if !p.mergeString(object.FieldByIndex(part.index), change) {
			return false
		}
	}
	return true
}

func (p *Patch) mergeString(f reflect.Value, change any) (ok bool) {
	if text, isText := change.(string); isText && f.Kind() == reflect.String {
		f.SetString(text)
		return true
	}
	entries, isObject := change.(map[string]any)
	merged, isMap := f.Interface().(map[string]string)
	if !isObject || !isMap {
		return false
	}
	if merged == nil {
		merged = make(map[string]string, len(entries))
		f.Set(reflect.ValueOf(merged))
	}
	for key, entry := range entries {
		text, isText := entry.(string)
		switch {
		case p.kind == types.StrategicMergePatchType && strings.HasPrefix(key, "$"):
			return false // a directive
		case entry == nil:
			delete(merged, key)
		case isText:
			merged[key] = text
		default:
			return false
		}
	}
	return true
}
