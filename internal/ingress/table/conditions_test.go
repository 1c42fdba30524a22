package table

import (
	"crypto/tls"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// request returns a request such as "GET /a?x=1" with headers such as "Name: value".
func request(t *testing.T, text string, headers ...string) *http.Request {
	t.Helper()
	method, target, _ := strings.Cut(text, " ")
	r, err := http.NewRequest(method, "http://any.example"+target, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	return r
}

// conditionally adds a rule for a prefix, or for an exact path that begins with "=". The
// name of its route is what.
func conditionally(t *testing.T, b *Builder, host, text string, when Conditions, what string) {
	t.Helper()
	kind := Prefix
	if exact, ok := strings.CutPrefix(text, "="); ok {
		kind, text = Exact, exact
	}
	b.Deepen(host)
	b.AddConditional(host, kind, path(t, text), when, &Route{Namespace: "n", Name: what})
}

// found returns the name of the route of a request, "" for none.
func found(t *testing.T, table *Table, host string, r *http.Request) string {
	t.Helper()
	if route := table.Match(Host(host), path(t, r.URL.EscapedPath()), r); route != nil {
		return route.Name
	}
	return ""
}

// The specification of HTTPRouteRule.matches: the exact path comes first, then the longest
// prefix, a method, the number of headers, the number of parameters, and the order.
func TestPrecedenceOfConditions(t *testing.T) {
	pairs := func(names ...string) (all []Pair) {
		for _, name := range names {
			all = append(all, Pair{name, "1"})
		}
		return all
	}
	type rule struct {
		path string
		when Conditions
		what string
	}
	rules := []rule{ // the last ones first
		{"/", Conditions{}, "any"},
		{"/a", Conditions{}, "prefix"},
		{"/a", Conditions{Query: pairs("p")}, "one parameter"},
		{"/a", Conditions{Query: pairs("p", "q")}, "two parameters"},
		{"/a", Conditions{Headers: pairs("X")}, "one header"},
		{"/a", Conditions{Headers: pairs("X"), Query: pairs("p")}, "a header and a parameter"},
		{"/a", Conditions{Headers: pairs("X", "Y")}, "two headers"},
		{"/a", Conditions{Method: "PUT"}, "method"},
		{"/a", Conditions{Method: "PUT", Headers: pairs("X")}, "method and header"},
		{"/a/b", Conditions{Headers: pairs("Z")}, "longer prefix"},
		{"=/a/b", Conditions{Query: pairs("r")}, "exact"},
	}
	var forth, back Builder
	for _, r := range rules {
		conditionally(t, &forth, "", r.path, r.when, r.what)
	}
	for _, r := range slices.Backward(rules) {
		conditionally(t, &back, "", r.path, r.when, r.what)
	}
	one, two := forth.Table(), back.Table()
	for _, test := range []struct {
		request *http.Request
		want    string
	}{
		{request(t, "GET /x"), "any"},
		{request(t, "GET /a/x"), "prefix"},
		{request(t, "GET /a?p=1"), "one parameter"},
		{request(t, "GET /a?p=2&p=1"), "prefix"}, // the first value counts
		{request(t, "GET /a?p=1&q=1"), "two parameters"},
		{request(t, "GET /a?p=2&q=1", "x: 1"), "one header"},
		{request(t, "GET /a?p=1&q=1", "X: 1"), "a header and a parameter"},
		{request(t, "GET /a", "X: 1", "X: 2"), "prefix"}, // is 1,2
		{request(t, "GET /a?p=1", "X: 1", "Y: 1"), "two headers"},
		{request(t, "PUT /a?p=1", "Y: 1"), "method"},
		{request(t, "PUT /a", "X: 1", "Y: 1"), "method and header"},
		{request(t, "PUT /a/b/c", "Z: 1"), "longer prefix"},
		{request(t, "PUT /a/b"), "method"}, // the longer prefix wants a header
		{request(t, "PUT /a/b?r=1", "Z: 1"), "exact"},
		{request(t, "PUT /a/b/?r=1", "Z: 1"), "longer prefix"},
	} {
		for _, table := range []*Table{one, two} {
			if got := found(t, table, "any.example", test.request); got != test.want {
				t.Errorf("%s %s %v goes to %q, want %q", test.request.Method, test.request.URL, test.request.Header, got, test.want)
			}
		}
	}
}

// Several values of a header are compared as if they were joined, but are not: rules are
// many, and the values of a client long.
func TestHeadersOfSeveralValues(t *testing.T) {
	for _, test := range []struct {
		headers []string
		value   string
		want    bool
	}{
		{nil, "", false},
		{[]string{"X: "}, "", true},
		{[]string{"X: 1"}, "1", true},
		{[]string{"X: 1"}, "1,", false},
		{[]string{"X: 1"}, "12", false},
		{[]string{"X: 1", "X: 2"}, "1,2", true},
		{[]string{"X: 1", "X: 2"}, "12", false},
		{[]string{"X: 1", "X: 2"}, "1,2,", false},
		{[]string{"X: 1", "X: 2"}, "1", false},
		{[]string{"X: 1", "X: "}, "1,", true},
		{[]string{"X: 1,2"}, "1,2", true},
	} {
		a := &asked{request: request(t, "GET /", test.headers...)}
		when := &Conditions{Headers: []Pair{{"X", test.value}}}
		if got := a.meets(when); got != test.want {
			t.Errorf("%q is met by %q: %v", test.value, test.headers, got)
		}
		if n := testing.AllocsPerRun(10, func() { a.meets(when) }); n != 0 {
			t.Errorf("%q allocates %v times for %q", test.value, n, test.headers)
		}
	}
}

func TestTheFirstOfEqualConditionsWins(t *testing.T) {
	var b Builder
	conditionally(t, &b, "a.example", "/x/", Conditions{}, "first")
	conditionally(t, &b, "a.example", "/x", Conditions{}, "second")
	if got := found(t, b.Table(), "a.example", request(t, "GET /x")); got != "first" {
		t.Errorf("the request goes to %q", got)
	}
}

// Rules of a listener with TLS are not for requests without it, and the other way around.
func TestConditionsOfTLS(t *testing.T) {
	var b Builder
	conditionally(t, &b, "", "/", Conditions{}, "plain")
	conditionally(t, &b, "", "/x", Conditions{TLS: true}, "secure")
	table := b.Table()
	plain, secure := request(t, "GET /x"), request(t, "GET /x")
	secure.TLS = &tls.ConnectionState{}
	if got := found(t, table, "a.example", plain); got != "plain" {
		t.Errorf("without TLS: %q", got)
	}
	if got := found(t, table, "a.example", secure); got != "secure" {
		t.Errorf("with TLS: %q", got)
	}
	other := request(t, "GET /y")
	other.TLS = secure.TLS
	if got := found(t, table, "a.example", other); got != "" {
		t.Errorf("with TLS, a path without a rule: %q", got)
	}
}

// A method of gRPC without a service is the second of two elements.
func TestConditionsOfGRPC(t *testing.T) {
	var b Builder
	conditionally(t, &b, "", "/", Conditions{}, "any")
	conditionally(t, &b, "", "/", Conditions{GRPCMethod: "Get"}, "method")
	conditionally(t, &b, "", "/pkg.Shop", Conditions{}, "service")
	conditionally(t, &b, "", "=/pkg.Shop/Put", Conditions{}, "both")
	table := b.Table()
	for target, want := range map[string]string{
		"/other/Get": "method", "/other/Put": "any", "/pkg.Shop/Get": "service", "/pkg.Shop/Put": "both", "/Get": "any", "/a/b/Get": "any", "/a/Get/": "any",
	} {
		if got := found(t, table, "a.example", request(t, "POST "+target)); got != want {
			t.Errorf("%s goes to %q, want %q", target, got, want)
		}
	}
}

// The specification of Hostname: a wildcard stands for one label or more, and the longest
// name wins. Those of rules without conditions stand for one.
func TestDeepWildcards(t *testing.T) {
	var b Builder
	conditionally(t, &b, "*.example.com", "/", Conditions{}, "wide")
	conditionally(t, &b, "*.b.example.com", "/x", Conditions{}, "narrow")
	conditionally(t, &b, "a.b.example.com", "/y", Conditions{}, "exact")
	conditionally(t, &b, "", "/", Conditions{Method: "PUT"}, "all")
	certificate := &tls.Certificate{}
	b.AddCertificate("*.example.com", certificate)
	b.Add("*.example.org", Prefix, path(t, "/"), &Route{Namespace: "n", Name: "one label"})
	b.Add("*.example.com", Prefix, path(t, "/"), &Route{Namespace: "n", Name: "shadowed"})
	table := b.Table()
	for _, test := range []struct{ host, path, want string }{
		{"c.example.com", "/", "wide"},
		{"c.d.example.com", "/", "wide"},
		{"a.b.c.d.example.com", "/x", "wide"},
		{"example.com", "/", ""},
		{"a.b.example.com", "/y", "exact"},
		{"a.b.example.com", "/x", "narrow"},
		{"a.b.example.com", "/z", "wide"},
		{"c.a.b.example.com", "/x/1", "narrow"},
		{"a.example.org", "/", "one label"},
		{"a.b.example.org", "/", ""},
		{strings.Repeat("a.", maxName/2) + "example.com", "/", ""},
	} {
		if got := found(t, table, test.host, request(t, "GET "+test.path)); got != test.want {
			t.Errorf("%s%s goes to %q, want %q", test.host, test.path, got, test.want)
		}
	}
	if table.Certificate("x.y.example.com") != certificate || table.Certificate("example.com") != nil {
		t.Error("the certificate of a wildcard is not that of its names")
	}
}

// What the rules of the host of a listener leave over does not go to those of wider hosts,
// unless these have no conditions or the request comes to another port.
func TestEndOfHosts(t *testing.T) {
	var b Builder
	conditionally(t, &b, "", "/", Conditions{}, "all")
	conditionally(t, &b, "", "/", Conditions{TLS: true}, "all secure")
	conditionally(t, &b, "*.b.example", "/b", Conditions{}, "wildcard")
	conditionally(t, &b, "a.b.example", "/a", Conditions{}, "exact")
	b.Add("", Prefix, path(t, "/plain"), &Route{Namespace: "n", Name: "plain"})
	b.End("*.b.example", false)
	table := b.Table()
	for _, test := range []struct{ host, path, want string }{
		{"a.b.example", "/a", "exact"},
		{"a.b.example", "/b", "wildcard"},
		{"a.b.example", "/c", ""},
		{"c.d.b.example", "/c", ""},
		{"c.d.b.example", "/plain", "plain"},
		{"b.example", "/c", "all"},
	} {
		if got := found(t, table, test.host, request(t, "GET "+test.path)); got != test.want {
			t.Errorf("%s%s goes to %q, want %q", test.host, test.path, got, test.want)
		}
	}
	secure := request(t, "GET /c")
	secure.TLS = &tls.ConnectionState{}
	if got := found(t, table, "a.b.example", secure); got != "all secure" {
		t.Errorf("with TLS: %q", got)
	}
}

// What the rules of a host leave over does not go to another namespace, with conditions
// as without.
func TestConditionalHostsOfNamespaces(t *testing.T) {
	var b Builder
	b.Own("a.b.example", "one")
	b.Own("*.example", "two")
	b.Own("", "one")
	conditionally(t, &b, "a.b.example", "/x", Conditions{}, "own")
	conditionally(t, &b, "*.example", "/", Conditions{}, "other")
	conditionally(t, &b, "", "/all", Conditions{}, "all")
	table := b.Table()
	for target, want := range map[string]string{"/x": "own", "/y": "", "/all": "all"} {
		if got := found(t, table, "a.b.example", request(t, "GET "+target)); got != want {
			t.Errorf("%s goes to %q, want %q", target, got, want)
		}
	}
	if got := found(t, table, "c.b.example", request(t, "GET /y")); got != "other" {
		t.Errorf("the wildcard's own name goes to %q", got)
	}
}

// The table of the specification of HTTPPathModifier.replacePrefixMatch, and what is not
// in it.
func TestReplacedPrefixes(t *testing.T) {
	for _, row := range []struct{ request, prefix, with, want string }{
		{"/foo/bar", "/foo", "/xyz", "/xyz/bar"},
		{"/foo/bar", "/foo", "/xyz/", "/xyz/bar"},
		{"/foo/bar", "/foo/", "/xyz", "/xyz/bar"},
		{"/foo/bar", "/foo/", "/xyz/", "/xyz/bar"},
		{"/foo", "/foo", "/xyz", "/xyz"},
		{"/foo/", "/foo", "/xyz", "/xyz/"},
		{"/foo/bar", "/foo", "", "/bar"},
		{"/foo/", "/foo", "", "/"},
		{"/foo", "/foo", "", "/"},
		{"/foo/", "/foo", "/", "/"},
		{"/foo", "/foo", "/", "/"},
		{"/foo", "/", "/xyz", "/xyz/foo"},
		{"//foo//b%2Fr/", "/foo", "/xyz", "/xyz//b%2Fr/"},
		{"/foo/x/../../foo/bar", "/foo", "/xyz", "/xyz/bar"},
	} {
		p := path(t, row.request)
		r := &Route{Prefix: path(t, row.prefix).Elements()}
		if got := r.Changed(p, &PathChange{With: row.with, Prefix: true}); got != row.want {
			t.Errorf("%s with %q in place of %s is %q, want %q", row.request, row.with, row.prefix, got, row.want)
		}
	}
	r := &Route{}
	if got := r.Changed(path(t, "/foo/bar"), &PathChange{With: "/xyz"}) + " " + r.Changed(path(t, "/foo"), nil); got != "/xyz /foo" {
		t.Errorf("changed to %q", got)
	}
}

func TestHeaderChanges(t *testing.T) {
	h := http.Header{"A": {"1"}, "B": {"1", "2"}, "C": {"1"}}
	c := HeaderChanges{Set: []Pair{{"B", "3"}, {"D", "4"}}, Add: []Pair{{"A", "2"}}, Remove: []string{"C", "E"}}
	c.Apply(h)
	if got := strings.Join(h["A"], "") + strings.Join(h["B"], "") + strings.Join(h["D"], ""); got != "1234" || len(h) != 3 {
		t.Errorf("changed to %v", h)
	}
}
