// Package headers removes request headers, in all spellings that servers accept.
package headers

import (
	"net/http"
	"slices"
)

// Set is a set of headers, given by names and by prefixes of names.
type Set struct {
	Names    []string
	Prefixes []string
}

// FrontProxy returns the headers that identify the sender of a request: the
// default headers of front proxies, and Authorization.
func FrontProxy() Set {
	return Set{
		Names:    []string{"Authorization", "X-Remote-User", "X-Remote-Uid", "X-Remote-Group"},
		Prefixes: []string{"X-Remote-Extra-"},
	}
}

// With returns the union of s and the given names and prefixes.
func (s Set) With(names, prefixes []string) Set {
	return Set{Names: union(s.Names, names), Prefixes: union(s.Prefixes, prefixes)}
}

func union(a, b []string) []string {
	all := slices.Clone(a)
	for _, s := range b {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}

// Strip deletes the headers of the set from h. It ignores case and treats
// underscores as hyphens, as many servers behind this one do.
func (s *Set) Strip(h http.Header) {
	for name := range h {
		if s.has(name) {
			delete(h, name)
		}
	}
}

func (s *Set) has(name string) bool {
	for _, n := range s.Names {
		if len(n) == len(name) && Begins(name, n) {
			return true
		}
	}
	for _, p := range s.Prefixes {
		if p != "" && Begins(name, p) {
			return true
		}
	}
	return false
}

// Begins reports whether a header's name begins with a prefix. It ignores case and
// treats underscores as hyphens.
func Begins(name, prefix string) bool {
	if len(name) < len(prefix) {
		return false
	}
	for i := range len(prefix) {
		if fold(name[i]) != fold(prefix[i]) {
			return false
		}
	}
	return true
}

func fold(c byte) byte {
	switch {
	case 'A' <= c && c <= 'Z':
		return c + 'a' - 'A'
	case c == '_':
		return '-'
	}
	return c
}
