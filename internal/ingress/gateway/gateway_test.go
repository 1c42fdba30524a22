package gateway

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/ingress/table"
)

// world are the objects of a test.
type world struct {
	t *testing.T
	Source
	secrets map[string]*tls.Certificate // by NAMESPACE/NAME
	open    bool                        // whether the ports of the node are
	owners  map[string]string           // namespaces of hosts, for which claims are too late
}

// newWorld returns objects in YAML, separated by lines of three dashes. Those without a
// creation time are the oldest. All Services are there whose names do not begin with "no".
func newWorld(t *testing.T, text string) *world {
	t.Helper()
	w := &world{t: t, open: true, secrets: map[string]*tls.Certificate{}, owners: map[string]string{}}
	w.HTTPPort, w.HTTPSPort = 80, 443
	w.NamespaceLabels = func(name string) labels.Set { return labels.Set{"kubernetes.io/metadata.name": name} }
	w.Addresses = func([]string) []string {
		if w.open {
			return []string{"192.0.2.1"}
		}
		return nil
	}
	w.Backend = func(namespace, service string, port int32, grpc bool) (*table.Backend, string, string) {
		if strings.HasPrefix(service, "no") {
			return nil, "BackendNotFound", "Service " + service + ": there is none of that name"
		}
		b := &table.Backend{Name: fmt.Sprintf("%s/%s:%d", namespace, service, port), Protocol: table.HTTP1}
		b.SetEndpoints([]netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:80")})
		if grpc {
			b.Protocol = table.H2C
		}
		return b, "", ""
	}
	w.Certificate = func(namespace, secret string) (*tls.Certificate, error) {
		if c := w.secrets[namespace+"/"+secret]; c != nil {
			return c, nil
		}
		return nil, errors.New("none")
	}
	w.Classes = []*Class{{}}
	w.Classes[0].Name, w.Classes[0].Spec.ControllerName = DefaultClass, ControllerName
	for _, part := range strings.Split(text, "\n---\n") {
		w.add(part)
	}
	return w
}

// add adds an object in YAML.
func (w *world) add(text string) {
	w.t.Helper()
	into := func(o any) {
		if err := yaml.Unmarshal([]byte(text), o); err != nil {
			w.t.Fatalf("%v in\n%s", err, text)
		}
	}
	var kind struct{ Kind string }
	switch into(&kind); kind.Kind {
	case KindGateway:
		g := &Gateway{}
		into(g)
		g.Spec.GatewayClassName = DefaultClass
		w.Gateways = append(w.Gateways, g)
	case KindHTTP, KindGRPC:
		r := &Route{Kind: kind.Kind}
		into(r)
		w.Routes = append(w.Routes, r)
	case "ReferenceGrant":
		g := &Grant{}
		into(g)
		w.Grants = append(w.Grants, g)
	default:
		w.t.Fatalf("kind %q", kind.Kind)
	}
}

// compile compiles the objects. Hosts belong to the first that claims them, unless the
// test says otherwise.
func (w *world) compile() (*table.Table, *Plan) {
	plan := Compile(&w.Source)
	owners := map[string]string{}
	for host, namespace := range w.owners {
		owners[host] = namespace
	}
	slices.SortStableFunc(plan.Claims, func(a, b Claim) int { return a.Since.Compare(b.Since) })
	for _, c := range plan.Claims {
		if _, known := owners[c.Host]; !known {
			owners[c.Host] = c.Namespace
		}
	}
	var b table.Builder
	for host, namespace := range owners {
		b.Own(host, namespace)
	}
	plan.Add(&b, func(host string) string { return owners[host] })
	return b.Table(), plan
}

// answered returns what becomes of a request such as "GET http://host/path", with headers
// such as "Name: value": the backend, "500", or "404".
func (w *world) answered(of *table.Table, text string, headers ...string) string {
	w.t.Helper()
	method, target, _ := strings.Cut(text, " ")
	r, err := http.NewRequest(method, target, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if r.URL.Scheme == "https" {
		r.TLS = &tls.ConnectionState{}
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	path, err := table.ParsePath(r.URL.EscapedPath())
	if err != nil {
		w.t.Fatal(err)
	}
	route := of.Match(table.Host(r.Host), path, r)
	switch {
	case route == nil:
		return "404"
	case route.Targets[0].Backend.Invalid:
		return "500"
	}
	return route.Targets[0].Backend.Name
}

// conditionsOf returns the conditions in the status that an object gets, such as
// "Accepted=True/Accepted". Of a listener or a parent, which is the number of it.
func conditionsOf(t *testing.T, p *Plan, resource, name string, which int) string {
	t.Helper()
	for _, s := range p.Statuses() {
		if s.Resource != resource || s.Object.Name != name {
			continue
		}
		var all []string
		var list []conditionText
		data, err := json.Marshal(s.Value)
		if err != nil {
			t.Fatal(err)
		}
		var status struct {
			Conditions         []conditionText
			Listeners, Parents []struct{ Conditions []conditionText }
		}
		if err := json.Unmarshal(data, &status); err != nil {
			t.Fatal(err)
		}
		switch {
		case which < 0:
			list = status.Conditions
		case resource == "gateways":
			list = status.Listeners[which].Conditions
		default:
			list = status.Parents[which].Conditions
		}
		for _, c := range list {
			all = append(all, c.Type+"="+c.Status+"/"+c.Reason)
		}
		return strings.Join(all, " ")
	}
	return "no change"
}

type conditionText struct{ Type, Status, Reason string }

// attachedTo returns how many routes a listener has.
func attachedTo(p *Plan, name string, listener int) int32 {
	for _, s := range p.Statuses() {
		if g, ok := s.Value.(GatewayStatus); ok && s.Object.Name == name {
			return g.Listeners[listener].AttachedRoutes
		}
	}
	return -1
}

const good = "Accepted=True/Accepted Conflicted=False/NoConflicts ResolvedRefs=True/ResolvedRefs Programmed=True/Programmed"

const webGateway = `
kind: Gateway
metadata: {name: gw, namespace: infra, generation: 3}
spec:
  listeners:
  - {name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}`

// routeText returns an HTTPRoute of a namespace to the Gateway infra/gw, with fields of its
// spec in YAML.
func routeText(namespace, name, spec string) string {
	return fmt.Sprintf("kind: HTTPRoute\nmetadata: {name: %s, namespace: %s}\nspec:\n  parentRefs: [{name: gw, namespace: infra}]\n  %s", name, namespace, strings.ReplaceAll(spec, "\n", "\n  "))
}

func TestRoutes(t *testing.T) {
	w := newWorld(t, webGateway+"\n---\n"+routeText("web", "shop", `hostnames: [Shop.example, "*.shop.example"]
rules:
- matches:
  - path: {type: Exact, value: /exact}
  - path: {type: PathPrefix, value: /api/}
    headers: [{name: x-version, value: "2"}, {name: X-Version, value: "3"}]
    queryParams: [{name: q, value: "1"}]
  - method: PUT
  backendRefs: [{name: one, port: 80}]
- backendRefs: [{name: rest, port: 81}]`))
	served, plan := w.compile()
	for request, want := range map[string]string{
		"GET http://shop.example/exact":   "web/one:80",
		"GET http://shop.example/exact/":  "web/rest:81",
		"PUT http://a.b.shop.example/":    "web/one:80",
		"GET http://shop.example/api?q=1": "web/rest:81",
		"GET http://other.example/":       "404",
		"GET https://shop.example/":       "404",
	} {
		if got := w.answered(served, request); got != want {
			t.Errorf("%s: %s, want %s", request, got, want)
		}
	}
	if got := w.answered(served, "GET http://shop.example/api/v1?q=1", "X-Version: 2"); got != "web/one:80" {
		t.Errorf("with a header: %s", got) // the second one for the same name does not count
	}
	if got := conditionsOf(t, plan, "httproutes", "shop", 0); got != "Accepted=True/Accepted ResolvedRefs=True/ResolvedRefs" {
		t.Errorf("conditions of the route: %s", got)
	}
	if got := conditionsOf(t, plan, "gateways", "gw", -1); got != "Accepted=True/Accepted Programmed=True/Programmed" {
		t.Errorf("conditions of the Gateway: %s", got)
	}
	if got := conditionsOf(t, plan, "gateways", "gw", 0); got != good || attachedTo(plan, "gw", 0) != 1 {
		t.Errorf("conditions of the listener: %s, with %d routes", got, attachedTo(plan, "gw", 0))
	}
	w.open = false
	if _, plan = w.compile(); conditionsOf(t, plan, "gateways", "gw", -1) != "Accepted=True/Accepted Programmed=False/AddressNotAssigned" {
		t.Errorf("conditions with closed ports: %s", conditionsOf(t, plan, "gateways", "gw", -1))
	}
}

// A status that an object has already is not written again, and what others have written
// in that of a route stays.
func TestStatusesAreStable(t *testing.T) {
	w := newWorld(t, webGateway+"\n---\n"+routeText("web", "shop", `rules: [{backendRefs: [{name: one, port: 80}]}]`))
	foreign := ParentStatus{ControllerName: "other.example/gateway"}
	w.Routes[0].Status.Parents = []ParentStatus{{ControllerName: ControllerName}, foreign} // of a parent that is gone
	_, plan := w.compile()
	for _, s := range plan.Statuses() {
		switch value := s.Value.(type) {
		case ClassStatus:
			w.Classes[0].Status = value
			if !slices.IsSortedFunc(value.SupportedFeatures, func(a, b Feature) int { return strings.Compare(a.Name, b.Name) }) {
				t.Error("the supported features are not sorted")
			}
		case GatewayStatus:
			w.Gateways[0].Status = value
			if got := value.Conditions[0].ObservedGeneration; got != 3 {
				t.Errorf("observed the generation %d", got)
			}
		case RouteStatus:
			w.Routes[0].Status = value
			if len(value.Parents) != 2 || value.Parents[0].ControllerName != foreign.ControllerName {
				t.Errorf("parents %+v", value.Parents)
			}
		}
	}
	_, plan = w.compile()
	if again := plan.Statuses(); len(again) > 0 {
		t.Errorf("written again: %+v", again)
	}
	since := w.Gateways[0].Status.Conditions[0].LastTransitionTime
	w.Gateways[0].Generation++
	_, plan = w.compile()
	again := plan.Statuses()
	if len(again) != 1 {
		t.Fatalf("a new generation changes %d statuses", len(again))
	}
	if c := again[0].Value.(GatewayStatus).Conditions[0]; c.ObservedGeneration != 4 || c.LastTransitionTime != since {
		t.Errorf("of a new generation: %+v", c)
	}
	w.Routes[0].Spec.ParentRefs = nil
	_, plan = w.compile()
	if got := len(plan.Statuses()[1].Value.(RouteStatus).Parents); got != 1 {
		t.Errorf("a route without parents here has %d", got)
	}
}

// What routes cannot attach to, with the reasons of the specification.
func TestParents(t *testing.T) {
	w := newWorld(t, `
kind: Gateway
metadata: {name: gw, namespace: infra}
spec:
  listeners:
  - {name: same, port: 80, protocol: HTTP, hostname: same.example}
  - {name: all, port: 80, protocol: HTTP, hostname: "*.all.example", allowedRoutes: {namespaces: {from: All}, kinds: [{kind: HTTPRoute}]}}
  - name: selected
    port: 80
    protocol: HTTP
    hostname: selected.example
    allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {kubernetes.io/metadata.name: web}}}}
  - {name: grpc, port: 80, protocol: HTTP, hostname: grpc.example, allowedRoutes: {namespaces: {from: All}, kinds: [{kind: GRPCRoute}]}}`)
	for what, test := range map[string]struct{ namespace, parent, hosts, want string }{
		"same":                 {"infra", "sectionName: same", "", "True/Accepted"},
		"another namespace":    {"web", "sectionName: same", "", "False/NotAllowedByListeners"},
		"all":                  {"web", "sectionName: all", "a.b.all.example", "True/Accepted"},
		"a wildcard below":     {"web", "sectionName: all", "*.b.all.example", "True/Accepted"},
		"the wildcard's own":   {"web", "sectionName: all", "all.example", "False/NoMatchingListenerHostname"},
		"another host":         {"web", "", "other.example", "False/NoMatchingListenerHostname"},
		"selected":             {"web", "", "selected.example", "True/Accepted"},
		"not selected":         {"other", "sectionName: selected", "", "False/NotAllowedByListeners"},
		"another kind":         {"web", "sectionName: grpc", "", "False/NotAllowedByListeners"},
		"no listener":          {"infra", "sectionName: none", "", "False/NoMatchingParent"},
		"no port":              {"infra", "port: 81", "", "False/NoMatchingParent"},
		"a port":               {"infra", "port: 80", "", "True/Accepted"},
		"a section and a port": {"infra", "sectionName: same, port: 81", "", "False/NoMatchingParent"},
	} {
		hosts := ""
		if test.hosts != "" {
			hosts = `"` + test.hosts + `"`
		}
		if test.parent != "" {
			test.parent = ", " + test.parent
		}
		w.Routes = nil
		w.add(fmt.Sprintf("kind: HTTPRoute\nmetadata: {name: r, namespace: %s}\nspec: {parentRefs: [{name: gw, namespace: infra%s}], hostnames: [%s]}", test.namespace, test.parent, hosts))
		_, plan := w.compile()
		if got := conditionsOf(t, plan, "httproutes", "r", 0); !strings.HasPrefix(got, "Accepted="+test.want+" ") {
			t.Errorf("%s: %s, want %s", what, got, test.want)
		}
	}
	w.Routes = nil
	w.add("kind: HTTPRoute\nmetadata: {name: r, namespace: web}\nspec: {parentRefs: [{name: none, namespace: infra}, {name: gw, kind: Service}]}")
	if _, plan := w.compile(); conditionsOf(t, plan, "httproutes", "r", 0) != "no change" {
		t.Error("a route without a Gateway of this controller has a status")
	}
}

// Backends that cannot be had, with the reasons of the specification. They answer 500.
func TestBackends(t *testing.T) {
	for what, test := range map[string]struct{ refs, want, answer string }{
		"one":               {"[{name: one, port: 80}]", "True/ResolvedRefs", "web/one:80"},
		"none of that name": {"[{name: none, port: 80}]", "False/BackendNotFound", "500"},
		"another kind":      {"[{name: one, kind: Pod, port: 80}]", "False/InvalidKind", "500"},
		"another group":     {"[{name: one, group: example.com, port: 80}]", "False/InvalidKind", "500"},
		"without a port":    {"[{name: one}]", "False/UnsupportedValue", "500"},
		"no grant":          {"[{name: one, namespace: other, port: 80}]", "False/RefNotPermitted", "500"},
		"a grant":           {"[{name: one, namespace: granted, port: 80}]", "True/ResolvedRefs", "granted/one:80"},
		"a grant of a name": {"[{name: named, namespace: named, port: 80}]", "True/ResolvedRefs", "named/named:80"},
		"of another name":   {"[{name: one, namespace: named, port: 80}]", "False/RefNotPermitted", "500"},
		"of another kind":   {"[{name: one, namespace: gateways, port: 80}]", "False/RefNotPermitted", "500"},
		"without weight":    {"[{name: one, port: 80, weight: 0}]", "True/ResolvedRefs", "500"},
		"no backend":        {"[]", "True/ResolvedRefs", "500"},
	} {
		w := newWorld(t, webGateway)
		for _, grant := range []struct{ namespace, kind, to string }{{"granted", KindHTTP, "{group: '', kind: Service}"}, {"named", KindHTTP, "{kind: Service, name: named}"}, {"gateways", KindGRPC, "{kind: Service}"}} {
			w.add(fmt.Sprintf("kind: ReferenceGrant\nmetadata: {name: g, namespace: %s}\nspec: {from: [{group: %s, kind: %s, namespace: web}], to: [%s]}", grant.namespace, Group, grant.kind, grant.to))
		}
		w.add(routeText("web", "r", "rules: [{backendRefs: "+test.refs+"}]"))
		served, plan := w.compile()
		if got := conditionsOf(t, plan, "httproutes", "r", 0); got != "Accepted=True/Accepted ResolvedRefs="+test.want {
			t.Errorf("%s: %s, want %s", what, got, test.want)
		}
		if got := w.answered(served, "GET http://any.example/"); got != test.answer {
			t.Errorf("%s: %s, want %s", what, got, test.answer)
		}
	}
}

// Weights are shares, also of backends that there are not.
func TestWeights(t *testing.T) {
	w := newWorld(t, webGateway+"\n---\n"+routeText("web", "r", "rules: [{backendRefs: [{name: one, port: 80, weight: 3}, {name: none, port: 80}, {name: two, port: 80, weight: 0}]}]"))
	_, plan := w.compile()
	var got []string
	for _, target := range plan.routes[0].places[0].route.Targets {
		got = append(got, fmt.Sprint(target.Backend.Name, target.Weight, target.Backend.Invalid))
	}
	if want := "web/one:803 false web/none1 true web/two:800 false"; strings.Join(got, " ") != want {
		t.Errorf("targets %s, want %s", strings.Join(got, " "), want)
	}
}

// What is not supported is not served at all: without its conditions or filters, a rule
// would mean something else.
func TestUnsupportedRules(t *testing.T) {
	for what, rule := range map[string]string{
		"a path by an expression":      "{matches: [{path: {type: RegularExpression, value: /a.*}}]}",
		"a path that is none":          "{matches: [{path: {value: a}}]}",
		"a long path":                  "{matches: [{path: {value: /" + strings.Repeat("a", maxPathLength) + "}}]}",
		"a header by an expression":    "{matches: [{headers: [{type: RegularExpression, name: a, value: b}]}]}",
		"the header Host":              "{matches: [{headers: [{name: host, value: b}]}]}",
		"a parameter by an expression": "{matches: [{queryParams: [{type: RegularExpression, name: a, value: b}]}]}",
		"a mirror":                     "{filters: [{type: RequestMirror, requestMirror: {backendRef: {name: one, port: 80}}}]}",
		"an extension":                 "{filters: [{type: ExtensionRef}]}",
		"an empty filter":              "{filters: [{type: RequestRedirect}]}",
		"a filter twice":               "{filters: [{type: RequestHeaderModifier, requestHeaderModifier: {}}, {type: RequestHeaderModifier, requestHeaderModifier: {}}]}",
		"a filter of a backend":        "{backendRefs: [{name: one, port: 80, filters: [{type: RequestHeaderModifier}]}]}",
		"a header of the connection":   "{filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: transfer-encoding, value: chunked}]}}]}",
		"a removed header of it":       "{filters: [{type: ResponseHeaderModifier, responseHeaderModifier: {remove: [Content-Length]}}]}",
		"a scheme":                     "{filters: [{type: RequestRedirect, requestRedirect: {scheme: ftp}}]}",
		"a status":                     "{filters: [{type: RequestRedirect, requestRedirect: {statusCode: 200}}]}",
		"a prefix of an exact path":    "{matches: [{path: {type: Exact, value: /a}}], filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /b}}}]}",
		"a path to rewrite to":         "{filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplaceFullPath, replaceFullPath: b}}}]}",
		"a timeout":                    "{timeouts: {request: soon}}",
	} {
		w := newWorld(t, webGateway+"\n---\n"+routeText("web", "r", "rules: ["+rule+", {backendRefs: [{name: one, port: 80}]}]"))
		served, plan := w.compile()
		if got := conditionsOf(t, plan, "httproutes", "r", 0); !strings.HasPrefix(got, "Accepted=False/UnsupportedValue ") {
			t.Errorf("%s: %s", what, got)
		}
		if got := w.answered(served, "GET http://any.example/"); got != "404" {
			t.Errorf("%s: a part of the route is served: %s", what, got)
		}
	}
	w := newWorld(t, webGateway+"\n---\n"+routeText("web", "r", "rules: [{filters: [{type: RequestRedirect, requestRedirect: {}}, {type: URLRewrite, urlRewrite: {}}]}]"))
	if _, plan := w.compile(); !strings.HasPrefix(conditionsOf(t, plan, "httproutes", "r", 0), "Accepted=False/IncompatibleFilters ") {
		t.Error("a redirection with a rewrite is accepted")
	}
}

// What filters and timeouts become.
func TestFilters(t *testing.T) {
	w := newWorld(t, webGateway+"\n---\n"+routeText("web", "r", `rules:
- matches: [{path: {value: /old/}}]
  filters:
  - {type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x-a, value: "1"}], add: [{name: X-B, value: "2"}], remove: [x-c]}}
  - {type: ResponseHeaderModifier, responseHeaderModifier: {remove: [server]}}
  - {type: URLRewrite, urlRewrite: {hostname: inner.example, path: {type: ReplacePrefixMatch, replacePrefixMatch: "/new way/"}}}
  timeouts: {request: 10s, backendRequest: 2s}
  backendRefs: [{name: one, port: 80}]
- matches: [{path: {value: /go}}]
  filters: [{type: RequestRedirect, requestRedirect: {scheme: https, hostname: b.example, port: 8443, statusCode: 301, path: {type: ReplaceFullPath, replaceFullPath: /x}}}]
  timeouts: {request: 0s}`))
	_, plan := w.compile()
	first, second := plan.routes[0].places[0].route, plan.routes[0].places[1].route
	p, err := table.ParsePath("/old/x")
	if err != nil {
		t.Fatal(err)
	}
	f := first.Filters
	if got := fmt.Sprint(f.Request, f.Response, f.Rewrite.Host, " ", first.Changed(p, f.Rewrite.Path), first.Timeout, first.AnswerTimeout); got != "{[{X-A 1}] [{X-B 2}] [X-C]} {[] [] [Server]}inner.example /new%20way/x10s 2s" {
		t.Errorf("filters and timeouts are %s", got)
	}
	r := second.Filters.Redirect
	if got := fmt.Sprint(r.Scheme, " ", r.Host, r.Port, r.Code, r.Path.With, second.Timeout, second.AnswerTimeout); got != "https b.example8443 301/x0s 0s" {
		t.Errorf("the redirection is %s", got)
	}
}

// The conditions of listeners, with the reasons of the specification.
func TestListeners(t *testing.T) {
	for what, test := range map[string]struct{ listeners, want string }{
		"HTTP":                {"{port: 80, protocol: HTTP}", good},
		"TCP":                 {"{port: 81, protocol: TCP}", "Accepted=False/UnsupportedProtocol Conflicted=False/NoConflicts ResolvedRefs=True/ResolvedRefs Programmed=False/Invalid"},
		"another port":        {"{port: 8080, protocol: HTTP}", "Accepted=False/PortUnavailable Conflicted=False/NoConflicts ResolvedRefs=True/ResolvedRefs Programmed=False/Invalid"},
		"HTTPS":               {"{port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: own}]}}", good},
		"no certificate":      {"{port: 443, protocol: HTTPS}", "Accepted=True/Accepted Conflicted=False/NoConflicts ResolvedRefs=False/InvalidCertificateRef Programmed=False/Invalid"},
		"no Secret":           {"{port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: none}]}}", "Accepted=True/Accepted Conflicted=False/NoConflicts ResolvedRefs=False/InvalidCertificateRef Programmed=False/Invalid"},
		"another kind":        {"{port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: own, kind: ConfigMap}]}}", "Accepted=True/Accepted Conflicted=False/NoConflicts ResolvedRefs=False/InvalidCertificateRef Programmed=False/Invalid"},
		"of others":           {"{port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: secret, namespace: other}]}}", "Accepted=True/Accepted Conflicted=False/NoConflicts ResolvedRefs=False/RefNotPermitted Programmed=False/Invalid"},
		"with a grant":        {"{port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: secret, namespace: granted}]}}", good},
		"passthrough":         {"{port: 443, protocol: HTTPS, tls: {mode: Passthrough, certificateRefs: [{name: own}]}}", "Accepted=False/UnsupportedProtocol Conflicted=False/NoConflicts ResolvedRefs=True/ResolvedRefs Programmed=False/Invalid"},
		"clients' keys":       {"{port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: own}], frontendValidation: {caCertificateRefs: []}}}", "Accepted=False/UnsupportedValue Conflicted=False/NoConflicts ResolvedRefs=True/ResolvedRefs Programmed=False/Invalid"},
		"an unknown kind":     {"{port: 80, protocol: HTTP, allowedRoutes: {kinds: [{kind: TCPRoute}, {kind: HTTPRoute}]}}", "Accepted=True/Accepted Conflicted=False/NoConflicts ResolvedRefs=False/InvalidRouteKinds Programmed=True/Programmed"},
		"an unknown one only": {"{port: 80, protocol: HTTP, allowedRoutes: {kinds: [{kind: TCPRoute}]}}", "Accepted=True/Accepted Conflicted=False/NoConflicts ResolvedRefs=False/InvalidRouteKinds Programmed=False/Invalid"},
		"the same host":       {"{port: 80, protocol: HTTP, hostname: a.example}, {name: b, port: 80, protocol: HTTP, hostname: A.example}", "Accepted=False/HostnameConflict Conflicted=True/HostnameConflict ResolvedRefs=True/ResolvedRefs Programmed=False/Invalid"},
		"other hosts":         {"{port: 80, protocol: HTTP, hostname: a.example}, {name: b, port: 80, protocol: HTTP, hostname: b.example}, {name: c, port: 80, protocol: HTTP}", good},
		"another protocol":    {"{port: 443, protocol: HTTP}, {name: b, port: 443, protocol: HTTPS}", "Accepted=False/PortUnavailable Conflicted=True/ProtocolConflict ResolvedRefs=True/ResolvedRefs Programmed=False/Invalid"},
	} {
		w := newWorld(t, "kind: Gateway\nmetadata: {name: gw, namespace: infra}\nspec: {listeners: ["+test.listeners+", {name: z, port: 80, protocol: HTTP, hostname: z.example}]}")
		w.add("kind: ReferenceGrant\nmetadata: {name: g, namespace: granted}\nspec: {from: [{group: " + Group + ", kind: Gateway, namespace: infra}], to: [{kind: Secret}]}")
		for _, name := range []string{"infra/own", "other/secret", "granted/secret"} {
			w.secrets[name] = &tls.Certificate{}
		}
		_, plan := w.compile()
		if got := conditionsOf(t, plan, "gateways", "gw", 0); got != test.want {
			t.Errorf("%s: %s, want %s", what, got, test.want)
		}
		want := "Accepted=True/Accepted Programmed=True/Programmed"
		if !strings.HasPrefix(test.want, "Accepted=True") {
			want = "Accepted=True/ListenersNotValid Programmed=True/Programmed"
		}
		if got := conditionsOf(t, plan, "gateways", "gw", -1); got != want {
			t.Errorf("%s: the Gateway is %s, want %s", what, got, want)
		}
	}
}

// Gateways that have nothing to serve, or ask for what they cannot have.
func TestRefusedGateways(t *testing.T) {
	for what, test := range map[string]struct{ spec, want string }{
		"no valid listener":    {"listeners: [{name: a, port: 81, protocol: HTTP}]", "Accepted=False/ListenersNotValid Programmed=False/Invalid"},
		"TLS of clients":       {"tls: {frontend: {default: {}}}, listeners: [{name: a, port: 80, protocol: HTTP}]", "Accepted=False/Invalid Programmed=False/Invalid"},
		"the node's address":   {"addresses: [{value: 192.0.2.1}], listeners: [{name: a, port: 80, protocol: HTTP}]", "Accepted=True/Accepted Programmed=True/Programmed"},
		"any address":          {"addresses: [{type: IPAddress}], listeners: [{name: a, port: 80, protocol: HTTP}]", "Accepted=True/Accepted Programmed=True/Programmed"},
		"another address":      {"addresses: [{value: 192.0.2.2}], listeners: [{name: a, port: 80, protocol: HTTP}]", "Accepted=True/Accepted Programmed=False/AddressNotUsable"},
		"a name as an address": {"addresses: [{type: Hostname, value: a.example}], listeners: [{name: a, port: 80, protocol: HTTP}]", "Accepted=False/UnsupportedAddress Programmed=False/Invalid"},
	} {
		w := newWorld(t, "kind: Gateway\nmetadata: {name: gw, namespace: infra}\nspec: {"+test.spec+"}")
		_, plan := w.compile()
		if got := conditionsOf(t, plan, "gateways", "gw", -1); got != test.want {
			t.Errorf("%s: %s, want %s", what, got, test.want)
		}
	}
}

// A listener with TLS has its certificate and its routes, and those of HTTP are apart.
func TestTLS(t *testing.T) {
	w := newWorld(t, `
kind: Gateway
metadata: {name: gw, namespace: infra}
spec:
  listeners:
  - {name: http, port: 80, protocol: HTTP, hostname: "*.shop.example", allowedRoutes: {namespaces: {from: All}}}
  - {name: https, port: 443, protocol: HTTPS, hostname: "*.shop.example", tls: {certificateRefs: [{name: own}]}, allowedRoutes: {namespaces: {from: All}}}
  - {name: broken, port: 443, protocol: HTTPS, hostname: broken.example, tls: {certificateRefs: [{name: none}]}, allowedRoutes: {namespaces: {from: All}}}`)
	own := &tls.Certificate{}
	w.secrets["infra/own"] = own
	w.add("kind: HTTPRoute\nmetadata: {name: plain, namespace: web}\nspec: {parentRefs: [{name: gw, namespace: infra, sectionName: http}], rules: [{filters: [{type: RequestRedirect, requestRedirect: {scheme: https}}]}]}")
	w.add("kind: HTTPRoute\nmetadata: {name: secure, namespace: web}\nspec: {parentRefs: [{name: gw, namespace: infra, sectionName: https}, {name: gw, namespace: infra, sectionName: broken}], rules: [{backendRefs: [{name: one, port: 80}]}]}")
	served, plan := w.compile()
	if got := w.answered(served, "GET https://a.b.shop.example/"); got != "web/one:80" {
		t.Errorf("with TLS: %s", got)
	}
	if got := w.answered(served, "GET http://a.shop.example/"); got != "500" { // the redirection comes before its backend
		t.Errorf("without TLS: %s", got)
	}
	if got := w.answered(served, "GET https://broken.example/"); got != "404" {
		t.Errorf("without a certificate: %s", got)
	}
	if served.Certificate("a.b.shop.example") != own || served.Certificate("broken.example") != nil {
		t.Error("a name does not have the certificate of its listener")
	}
	if got := conditionsOf(t, plan, "httproutes", "secure", 1); got != "Accepted=True/Accepted ResolvedRefs=True/ResolvedRefs" || attachedTo(plan, "gw", 2) != 1 {
		t.Errorf("at a listener without a certificate, a route is %s", got)
	}
}
