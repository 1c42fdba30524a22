package jsonpatch

import "errors"

var (
	errBadDocument = errors.New("Invalid JSON Document") //nolint:staticcheck // the library's message
	errBadPatch    = errors.New("Invalid JSON Patch")    //nolint:staticcheck // the library's message
)

// Merge applies a merge patch.
func Merge(document, patch []byte) ([]byte, error) {
	into, err := parse(document)
	if err != nil || into == nil {
		return nil, errBadDocument
	}
	changes, err := parse(patch)
	if err != nil {
		return nil, errBadPatch
	}
	switch c := changes.(type) {
	case *list:
		pruneNulls(c)
		return encode(c)
	case map[string]any:
		if fields, ok := into.(map[string]any); ok {
			mergeFields(fields, c)
			return encode(fields)
		}
		pruneNulls(c)
		return encode(c)
	}
	return nil, errBadPatch
}

func mergeFields(into, changes map[string]any) {
	for key, change := range changes {
		if change == nil {
			delete(into, key)
			continue
		}
		inner, isMap := change.(map[string]any)
		fields, ok := into[key].(map[string]any)
		switch {
		case ok && isMap:
			mergeFields(fields, inner)
		case ok:
			into[key] = change // nulls in a list that replaces an object remain
		default:
			pruneNulls(change)
			into[key] = change
		}
	}
}

// pruneNulls removes null fields of objects. Nulls in lists are values.
func pruneNulls(value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			if inner == nil {
				delete(v, key)
			} else {
				pruneNulls(inner)
			}
		}
	case *list:
		for _, inner := range v.items {
			pruneNulls(inner)
		}
	}
}
