// Package jsonpatch applies JSON patches (RFC 6902) and merge patches (RFC
// 7386) to documents that clients send or made: in time and memory that grow
// with the sizes of document and patch, within bounds for what copies and long
// lists would multiply. What it makes of a patch, and its words about one that
// cannot be applied, are those of gopkg.in/evanphx/json-patch.v4, which clients
// know; that library takes time with the depth of a document times its size.
package jsonpatch

import (
	"bytes"
	"encoding/json"
	"errors"
)

// maxNesting is how deep a document may nest, as where it is decoded.
const maxNesting = 10000

var errNesting = errors.New("exceeded max depth")

// Documents are trees of map[string]any, *list, string, json.Number, bool and
// nil.

// list is an array that operations change in place.
type list struct{ items []any }

// parse reads a document.
func parse(data []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var document any
	if err := decoder.Decode(&document); err != nil {
		return nil, err
	}
	if decoder.More() {
		return nil, errors.New("invalid character after top-level value")
	}
	return withLists(document), nil
}

// withLists replaces the slices of a tree.
func withLists(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			switch inner.(type) {
			case map[string]any, []any:
				v[key] = withLists(inner)
			}
		}
	case []any:
		for i := range v {
			v[i] = withLists(v[i])
		}
		return &list{v}
	}
	return value
}

// encode writes a document, which is no tree of this package any more then.
func encode(document any) ([]byte, error) {
	if deeper(document, maxNesting) {
		return nil, errNesting
	}
	return json.Marshal(withSlices(document))
}

// deeper says that values lie more than so many levels deep in each other.
func deeper(value any, levels int) bool {
	switch v := value.(type) {
	case map[string]any:
		for _, inner := range v {
			if levels == 0 || deeper(inner, levels-1) {
				return true
			}
		}
	case *list:
		for _, inner := range v.items {
			if levels == 0 || deeper(inner, levels-1) {
				return true
			}
		}
	}
	return false
}

// withSlices is a tree as encoding/json takes it.
func withSlices(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			switch inner.(type) {
			case map[string]any, *list:
				v[key] = withSlices(inner)
			}
		}
	case *list:
		for i := range v.items {
			v.items[i] = withSlices(v.items[i])
		}
		if v.items == nil {
			return []any{}
		}
		return v.items
	}
	return value
}

// size is how many bytes a value takes as JSON.
func size(value any) int {
	switch v := value.(type) {
	case map[string]any:
		total := 1 + max(len(v), 1)
		for key, inner := range v {
			total += textSize(key) + 1 + size(inner)
		}
		return total
	case *list:
		total := 1 + max(len(v.items), 1)
		for _, inner := range v.items {
			total += size(inner)
		}
		return total
	case string:
		return textSize(v)
	case json.Number:
		return len(v)
	case bool:
		if !v {
			return len("false")
		}
	}
	return len("null")
}

func textSize(text string) int {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			encoded, err := json.Marshal(text)
			if err != nil {
				return len(text)
			}
			return len(encoded)
		}
	}
	return len(text) + len(`""`)
}

// clone copies a value.
func clone(value any) any {
	switch v := value.(type) {
	case map[string]any:
		c := make(map[string]any, len(v))
		for key, inner := range v {
			c[key] = clone(inner)
		}
		return c
	case *list:
		c := &list{make([]any, len(v.items))}
		for i := range v.items {
			c.items[i] = clone(v.items[i])
		}
		return c
	}
	return value
}

// equal says whether two values are the same. Numbers are compared as they
// are written.
func equal(a, b any) bool {
	switch v := a.(type) {
	case map[string]any:
		w, ok := b.(map[string]any)
		if !ok || len(v) != len(w) {
			return false
		}
		for key, inner := range v {
			other, ok := w[key]
			if !ok || !equal(inner, other) {
				return false
			}
		}
		return true
	case *list:
		w, ok := b.(*list)
		if !ok || len(v.items) != len(w.items) {
			return false
		}
		for i := range v.items {
			if !equal(v.items[i], w.items[i]) {
				return false
			}
		}
		return true
	}
	switch b.(type) {
	case map[string]any, *list:
		return false
	}
	return a == b
}
