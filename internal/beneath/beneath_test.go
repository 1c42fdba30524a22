package beneath

import "testing"

func TestRel(t *testing.T) {
	for _, test := range []struct {
		dir, path, rest string
		ok              bool
	}{
		{"/a", "/a", "", true},
		{"/a", "/a/b/c", "b/c", true},
		{"/a/", "/a//b/", "b", true},
		{"/a", "/a/b/../../c", "", false},
		{"/a", "/ab", "", false},
		{"/a", "/a/..b", "..b", true},
		{"/a/b", "/a", "", false},
		{"/", "/", "", true},
		{"/", "/a", "a", true},
		{"/a", "a", "", false},
		{"a", "/a", "", false},
		{"", "/a", "", false},
		{"/a", "", "", false},
		{"a", "a/b", "b", true},
	} {
		if rest, ok := Rel(test.dir, test.path); rest != test.rest || ok != test.ok {
			t.Errorf("%q in %q: %q, %t", test.path, test.dir, rest, ok)
		}
	}
}
