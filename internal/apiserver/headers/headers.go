// Package headers takes request headers away however a client writes them.
package headers

import (
	"net/http"
	"slices"
)

// Set is headers by their names and by how they begin.
type Set struct {
	Names    []string
	Prefixes []string
}

// FrontProxy are the headers in which a front proxy names users unless it is
// told others, and Authorization: what says who sent a request.
func FrontProxy() Set {
	return Set{
		Names:    []string{"Authorization", "X-Remote-User", "X-Remote-Uid", "X-Remote-Group"},
		Prefixes: []string{"X-Remote-Extra-"},
	}
}

// With is the headers of s and others.
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

// Strip takes the headers of the set away, in any case and with underscores
// for hyphens: many servers behind this one take these for the same.
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

// Begins says whether a header's name begins with a prefix, whatever their
// case, with underscores taken for hyphens.
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
