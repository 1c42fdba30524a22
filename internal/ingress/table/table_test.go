package table

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// rule is a rule of a test. Its route has the rule's own text as its name.
type rule struct {
	host string
	kind PathType
	path string
}

func (r rule) String() string {
	return fmt.Sprintf("%s %s %s", r.host, [...]string{"exact", "prefix", "fallback"}[r.kind], r.path)
}

func path(t testing.TB, text string) Path {
	t.Helper()
	p, err := ParsePath(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// build returns a table of rules.
func build(t testing.TB, rules ...rule) *Table {
	t.Helper()
	var b Builder
	for _, r := range rules {
		p := Path{}
		if r.kind != Fallback {
			p = path(t, r.path)
		}
		b.Add(r.host, r.kind, p, &Route{Namespace: "n", Name: r.String()})
	}
	return b.Table()
}

// matched returns the name of the route of a request, "" for none.
func matched(t testing.TB, table *Table, host, escaped string) string {
	t.Helper()
	if r := table.Match(Host(host), path(t, escaped), nil); r != nil {
		return r.Name
	}
	return ""
}

// The rows of the table "Examples" of the Kubernetes documentation of Ingress, section
// "Path types".
func TestPathTypesOfTheDocumentation(t *testing.T) {
	prefix, exact := func(path string) rule { return rule{kind: Prefix, path: path} }, func(path string) rule { return rule{kind: Exact, path: path} }
	for _, row := range []struct {
		rules   []rule
		request string
		want    int // which rule matches; -1 is none
	}{
		{[]rule{prefix("/")}, "/", 0},
		{[]rule{prefix("/")}, "/any/path", 0}, // (all paths)
		{[]rule{exact("/foo")}, "/foo", 0},
		{[]rule{exact("/foo")}, "/bar", -1},
		{[]rule{exact("/foo")}, "/foo/", -1},
		{[]rule{exact("/foo/")}, "/foo", -1},
		{[]rule{prefix("/foo")}, "/foo", 0},
		{[]rule{prefix("/foo")}, "/foo/", 0},
		{[]rule{prefix("/foo/")}, "/foo", 0},
		{[]rule{prefix("/foo/")}, "/foo/", 0},
		{[]rule{prefix("/aaa/bb")}, "/aaa/bbb", -1},
		{[]rule{prefix("/aaa/bbb")}, "/aaa/bbb", 0},
		{[]rule{prefix("/aaa/bbb/")}, "/aaa/bbb", 0},
		{[]rule{prefix("/aaa/bbb")}, "/aaa/bbb/", 0},
		{[]rule{prefix("/aaa/bbb")}, "/aaa/bbb/ccc", 0},
		{[]rule{prefix("/aaa/bbb")}, "/aaa/bbbxyz", -1},
		{[]rule{prefix("/"), prefix("/aaa")}, "/aaa/ccc", 1},
		{[]rule{prefix("/"), prefix("/aaa"), prefix("/aaa/bbb")}, "/aaa/bbb", 2},
		{[]rule{prefix("/"), prefix("/aaa"), prefix("/aaa/bbb")}, "/ccc", 0},
		{[]rule{prefix("/aaa")}, "/ccc", -1},
		{[]rule{prefix("/foo"), exact("/foo")}, "/foo", 1},
	} {
		want := ""
		if row.want >= 0 {
			want = row.rules[row.want].String()
		}
		for _, rules := range [][]rule{row.rules, reversed(row.rules)} { // the order does not matter
			if got := matched(t, build(t, rules...), "any.example", row.request); got != want {
				t.Errorf("%v: %s goes to %q, want %q", rules, row.request, got, want)
			}
		}
	}
}

func reversed(rules []rule) []rule {
	rules = slices.Clone(rules)
	slices.Reverse(rules)
	return rules
}

// The rows of the table of the documentation's section "Hostname wildcards".
func TestWildcardsOfTheDocumentation(t *testing.T) {
	for _, row := range []struct {
		host, request string
		match         bool
	}{
		{"*.foo.com", "bar.foo.com", true},
		{"*.foo.com", "baz.bar.foo.com", false},
		{"*.foo.com", "foo.com", false},
	} {
		table := build(t, rule{row.host, Prefix, "/"})
		if got := matched(t, table, row.request, "/") != ""; got != row.match {
			t.Errorf("%s: %s matches: %v", row.host, row.request, got)
		}
	}
}

func TestHosts(t *testing.T) {
	rules := []rule{
		{"a.example.com", Prefix, "/a"}, {"*.example.com", Prefix, "/b"}, {"", Prefix, "/c"},
		{"a.example.com", Fallback, ""}, {"", Fallback, ""}, {"*.b.example.com", Exact, "/"},
	}
	table := build(t, rules...)
	for _, test := range []struct {
		host, path string
		want       int // -1 is none
	}{
		{"a.example.com", "/a", 0},
		{"A.Example.COM", "/a", 0},
		{"a.example.com:8080", "/a", 0},
		{"a.example.com.", "/a", 0},
		{"a.example.com", "/b", 1}, // the host itself has no such path
		{"a.example.com", "/c", 2},
		{"a.example.com", "/d", 3},
		{"b.example.com", "/a", 4},
		{"b.example.com", "/b", 1},
		{".example.com", "/b", 4},
		{"x.b.example.com", "/", 5},
		{"x.b.example.com", "/b", 4},
		{"", "/c", 2},
		{"192.0.2.1:80", "/c", 2},
		{"[2001:db8::1]:80", "/c", 2},
		{"com", "/d", 4},
	} {
		want := ""
		if test.want >= 0 {
			want = rules[test.want].String()
		}
		if got := matched(t, table, test.host, test.path); got != want {
			t.Errorf("http://%s%s goes to %q, want %q", test.host, test.path, got, want)
		}
	}
}

// However a client spells a path, it gets the route of what the path means, and the
// backend gets a path that means the same.
func TestSpellingsOfPaths(t *testing.T) {
	rules := []rule{{"", Prefix, "/"}, {"", Prefix, "/admin"}, {"", Exact, "/files/a b"}, {"", Exact, "/"}}
	table := build(t, rules...)
	for _, test := range []struct {
		path, raw string
		want      int
	}{
		{"/admin", "/admin", 1},
		{"/public/../admin", "/admin", 1},
		{"/public/%2e%2e/admin", "/admin", 1},
		{"/public/%2E./admin", "/admin", 1},
		{"/./admin", "/admin", 1},
		{"//admin", "//admin", 1},
		{"/admin//x", "/admin//x", 1},
		{"/%61dmin", "/%61dmin", 1},
		{"/../../admin", "/admin", 1},
		{"/admin/..", "/", 3},
		{"/admin/.", "/admin/", 1},
		{"/admin/../", "/", 3},
		{"/a//../admin", "/a/admin", 0}, // as RFC 3986 has it: an empty segment is one
		{"/public%2F..%2Fadmin", "/public%2F..%2Fadmin", 0},
		{"/admin%2Fx", "/admin%2Fx", 0}, // one element, which is not "admin"
		{"/Admin", "/Admin", 0},
		{"/admin;x=1", "/admin;x=1", 0},
		{"/files/a%20b", "/files/a%20b", 2},
		{"/...", "/...", 0},
		{"/", "/", 3},
		{"//", "//", 3},
	} {
		p := path(t, test.path)
		if got, want := table.Match("", p, nil), rules[test.want].String(); got == nil || got.Name != want {
			t.Errorf("%s goes to %v, want %s", test.path, got, want)
		}
		if p.Raw != test.raw {
			t.Errorf("%s is passed on as %s, want %s", test.path, p.Raw, test.raw)
		}
	}
	for _, malformed := range []string{"", "*", "admin", "/%", "/%zz", "/a%00b"} {
		if p, err := ParsePath(malformed); err == nil {
			t.Errorf("path %q is %+v", malformed, p)
		}
	}
}

func TestTheFirstRuleWins(t *testing.T) {
	var b Builder
	first, second := &Route{Namespace: "n", Name: "first"}, &Route{Namespace: "n", Name: "second"}
	if taken := b.Add("a.example", Prefix, path(t, "/x/"), first); taken != nil {
		t.Errorf("a free place was taken by %v", taken)
	}
	if taken := b.Add("a.example", Prefix, path(t, "/x"), second); taken != first {
		t.Errorf("the place was taken by %v, want the first route", taken)
	}
	if taken := b.Add("a.example", Exact, path(t, "/x"), second); taken != nil {
		t.Errorf("a rule of another type has the place of %v", taken)
	}
	table := b.Table()
	if !table.Has("n", "first") || !table.Has("n", "second") || table.Has("n", "third") {
		t.Error("the table does not know which objects define its routes")
	}
	owners := 0
	table.Owners(func(string, string) { owners++ })
	if owners != 2 {
		t.Errorf("%d owners of routes, want 2", owners)
	}
}

func TestCertificates(t *testing.T) {
	var b Builder
	exact, wildcard, other := &tls.Certificate{}, &tls.Certificate{}, &tls.Certificate{}
	if !b.AddCertificate("a.example.com", exact) || !b.AddCertificate("*.example.com", wildcard) || b.AddCertificate("a.example.com", other) {
		t.Error("the first certificate of a name does not win")
	}
	table := b.Table()
	for name, want := range map[string]*tls.Certificate{"a.example.com": exact, "b.example.com": wildcard, "x.b.example.com": nil, "example.com": nil, "": nil} {
		if got := table.Certificate(name); got != want {
			t.Errorf("%q has another certificate than it should", name)
		}
	}
	var withDefault Builder
	withDefault.AddCertificate("", other)
	if withDefault.Table().Certificate("any.example") != other {
		t.Error("a name without a certificate does not have that of all")
	}
}

// What the rules of a host leave over, and a name without a certificate of its own, do not
// go to another namespace.
func TestHostsOfNamespaces(t *testing.T) {
	var b Builder
	add := func(namespace, name string, kind PathType, text string) {
		p := Path{}
		if kind != Fallback {
			p = path(t, text)
		}
		b.Own(name, namespace)
		b.Add(name, kind, p, &Route{Namespace: namespace, Name: name})
	}
	wildcard, all := &tls.Certificate{}, &tls.Certificate{}
	add("one", "a.example", Exact, "/x")
	add("two", "*.example", Prefix, "/")
	add("two", "b.example", Exact, "/x")
	add("one", "", Prefix, "/y")
	add("one", "", Fallback, "")
	b.Own("c.example", "three") // has no rules
	b.AddCertificate("*.example", wildcard)
	b.AddCertificate("", all)
	table := b.Table()
	for request, want := range map[[2]string]string{
		{"a.example", "/x"}: "a.example", {"a.example", "/y"}: "", {"a.example", "/z"}: "", // the second is of all hosts, and of the same namespace
		{"b.example", "/x"}: "b.example", {"b.example", "/y"}: "*.example",
		{"c.example", "/y"}: "none", {"d.example", "/y"}: "*.example", {"other", "/y"}: "", {"other", "/z"}: "",
	} {
		got := "none"
		if r := table.Match(request[0], path(t, request[1]), nil); r != nil {
			got = r.Name
		}
		if got != want {
			t.Errorf("%v goes to %q, want %q", request, got, want)
		}
	}
	for name, want := range map[string]*tls.Certificate{"a.example": all, "b.example": wildcard, "c.example": nil, "d.example": wildcard, "other": all, "": all} {
		if got := table.Certificate(name); got != want {
			t.Errorf("%q has another certificate than it should", name)
		}
	}
}

func TestWeights(t *testing.T) {
	one, two, none := &Backend{Name: "one"}, &Backend{Name: "two"}, &Backend{Name: "none"}
	r := &Route{Targets: []Target{{one, 1}, {none, 0}, {two, 3}}}
	counts := map[string]int{}
	const times = 4000
	for range times {
		counts[r.Pick().Name]++
	}
	if counts["none"] > 0 || counts["one"] < times/8 || counts["one"] > times*3/8 {
		t.Errorf("requests went to %v", counts)
	}
	for _, r := range []*Route{{}, {Targets: []Target{{one, 0}}}, {Targets: []Target{{one, 0}, {two, -1}}}} {
		if got := r.Pick(); got != nil {
			t.Errorf("%v picked %v", r.Targets, got)
		}
	}
}

// slowMatch finds the rule of a request among all of a host, by the words of the
// documentation. Of rules in the same place, the first wins.
func slowMatch(rules []rule, request Path) string {
	best, length := "", -1
	for _, r := range rules {
		p, err := ParsePath(r.path)
		if err != nil {
			continue
		}
		n := len(p.elements)
		switch {
		case r.kind == Exact && slices.Equal(p.elements, request.elements) && p.slash == request.slash:
			n = len(request.elements) + 1 // more than any prefix
		case r.kind == Prefix && n <= len(request.elements) && slices.Equal(p.elements, request.elements[:n]):
		default:
			continue
		}
		if n > length {
			best, length = r.String(), n
		}
	}
	return best
}

// FuzzMatch compares the table with a search among all rules, and checks that a path is
// the same after it was passed on.
func FuzzMatch(f *testing.F) {
	f.Add("/a|/a/b|/", "/a/../a//b", uint8(2))
	f.Add("/%61|/a/|/x%2fy", "/x%2Fy/..", uint8(5))
	f.Add("/.|/..|//", "/%2e%2e/%2E", uint8(0))
	f.Fuzz(func(t *testing.T, texts, request string, kinds uint8) {
		p, err := ParsePath(request)
		if err != nil {
			return
		}
		again, err := ParsePath(p.Raw)
		if err != nil || again.Raw != p.Raw || !slices.Equal(again.elements, p.elements) || again.slash != p.slash {
			t.Errorf("%q is %+v, and passed on %+v, %v", request, p, again, err)
		}
		for _, element := range p.elements {
			if element == "" || element == "." || element == ".." {
				t.Errorf("%q has the element %q", request, element)
			}
		}
		var rules []rule
		for i, text := range strings.Split(texts, "|") {
			if _, err := ParsePath(text); err == nil {
				rules = append(rules, rule{"a.example", PathType(kinds >> (i % 8) & 1), text})
			}
		}
		if got, want := matched(t, build(t, rules...), "a.example", request), slowMatch(rules, p); got != want {
			t.Errorf("%v: %q goes to %q, want %q", rules, request, got, want)
		}
	})
}
