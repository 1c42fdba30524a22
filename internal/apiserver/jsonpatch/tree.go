// Package jsonpatch applies JSON patches (RFC 6902) and merge patches (RFC
// 7386). Its time and memory are linear in the sizes of the document and the
// patch, except for copies and insertions into long lists, which are bounded.
// Results and error messages equal those of gopkg.in/evanphx/json-patch.v4,
// which clients know. That library needs time in proportion to the depth of a
// document times its size.
package jsonpatch

import (
	"bytes"
	"encoding/json"
	"errors"
)

// maxNesting bounds the depth of a document, as its decoder does.
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

// withLists replaces the slices of a tree by lists.
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

// encode encodes a document. It converts the document in place, so that it
// cannot be used afterwards.
func encode(document any) ([]byte, error) {
	if deeper(document, maxNesting) {
		return nil, errNesting
	}
	return json.Marshal(withSlices(document))
}

// deeper reports whether a value is nested more deeply than a number of levels.
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

// withSlices converts a tree for encoding/json.
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

// size returns the size of a value's JSON in bytes.
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

// clone returns a deep copy of a value.
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

// equal reports whether two values are equal. It compares the text of numbers.
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
