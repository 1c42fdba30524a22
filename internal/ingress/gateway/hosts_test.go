package gateway

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/coracle-io/coracle/internal/ingress/table"
)

// Matches of gRPC, whose backends speak HTTP/2. A host has routes of one kind: the older.
func TestGRPC(t *testing.T) {
	w := newWorld(t, webGateway)
	w.add(`kind: GRPCRoute
metadata: {name: rpc, namespace: web, creationTimestamp: "2026-01-01T00:00:00Z"}
spec:
  parentRefs: [{name: gw, namespace: infra}]
  hostnames: [rpc.example]
  rules:
  - matches:
    - {method: {service: pkg.Shop, method: Get}}
    - {method: {service: pkg.Admin}, headers: [{name: key, value: "1"}]}
    - {method: {method: Ping}}
    backendRefs: [{name: one, port: 80}]`)
	for _, host := range []string{"rpc.example", "*.example", "web.example"} {
		name := strings.Trim(host, "*.")
		w.add(fmt.Sprintf("kind: HTTPRoute\nmetadata: {name: %s, namespace: web, creationTimestamp: \"2026-01-02T00:00:00Z\"}\nspec: {parentRefs: [{name: gw, namespace: infra}], hostnames: [\"%s\"], rules: [{backendRefs: [{name: two, port: 80}]}]}", name, host))
	}
	served, plan := w.compile()
	for target, want := range map[string]string{"/pkg.Shop/Get": "web/one:80", "/pkg.Shop/Put": "404", "/pkg.Admin/Get": "404", "/other/Ping": "web/one:80"} {
		if got := w.answered(served, "POST http://rpc.example"+target); got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
	if got := w.answered(served, "POST http://rpc.example/pkg.Admin/Get", "Key: 1"); got != "web/one:80" {
		t.Errorf("with a header: %s", got)
	}
	if r := plan.routes[0].places[0].route; r.Targets[0].Backend.Protocol != table.H2C || r.AnswerTimeout != 0 {
		t.Errorf("the route of gRPC is %+v", r)
	}
	for name, want := range map[string]string{"rpc.example": "False/RouteConflict", "example": "False/RouteConflict", "web.example": "True/Accepted"} {
		if got := conditionsOf(t, plan, "httproutes", name, 0); !strings.HasPrefix(got, "Accepted="+want+" ") {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// A host belongs to the namespace of the Gateway that had it first. A route may use hosts
// that are its own namespace's.
func TestHostsBelongToNamespaces(t *testing.T) {
	w := newWorld(t, webGateway)
	w.add("kind: Gateway\nmetadata: {name: thief, namespace: other, creationTimestamp: \"2026-01-01T00:00:00Z\"}\nspec: {listeners: [{name: any, port: 80, protocol: HTTP}, {name: named, port: 80, protocol: HTTP, hostname: listener.example}, {name: tls, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: own}]}}]}")
	w.secrets["other/own"] = &tls.Certificate{}
	w.owners["listener.example"], w.owners[""], w.owners["own.example"] = "ingresses", "ingresses", "web"
	w.add(routeText("web", "first", "hostnames: [shop.example, own.example]\nrules: [{backendRefs: [{name: one, port: 80}]}]"))
	w.add("kind: HTTPRoute\nmetadata: {name: second, namespace: other, creationTimestamp: \"2026-01-02T00:00:00Z\"}\nspec: {parentRefs: [{name: thief}], hostnames: [shop.example, own.example, listener.example], rules: [{matches: [{path: {value: /x}}], backendRefs: [{name: two, port: 80}]}]}")
	served, plan := w.compile()
	for _, host := range []string{"shop.example", "own.example"} {
		if got := w.answered(served, "GET http://"+host+"/x"); got != "web/one:80" {
			t.Errorf("%s: %s", host, got)
		}
	}
	if got := w.answered(served, "GET http://listener.example/x"); got != "404" {
		t.Errorf("a host of others: %s", got)
	}
	if served.Certificate("any.example") != nil {
		t.Error("a certificate is that of all names of others")
	}
	if got := conditionsOf(t, plan, "httproutes", "second", 0); !strings.HasPrefix(got, "Accepted=False/HostnameConflict ") || attachedTo(plan, "thief", 0) != 0 {
		t.Errorf("the route is %s", got)
	}
	for i, want := range []string{"Accepted=True/Accepted Conflicted=False/NoConflicts", "Accepted=False/HostnameConflict Conflicted=True/HostnameConflict", "Accepted=False/HostnameConflict Conflicted=True/HostnameConflict"} {
		if got := conditionsOf(t, plan, "gateways", "thief", i); !strings.HasPrefix(got, want+" ") {
			t.Errorf("listener %d is %s", i, got)
		}
	}
}

// A namespace has a bound of matches at hosts, which others do not feel.
func TestRoutesOfANamespaceAreBounded(t *testing.T) {
	w := newWorld(t, webGateway)
	var hosts []string
	for i := range maxPlaces {
		hosts = append(hosts, fmt.Sprintf("h%d.example", i))
	}
	w.add(routeText("web", "a-greedy", "hostnames: ["+strings.Join(hosts, ", ")+"]\nrules: [{backendRefs: [{name: one, port: 80}]}]"))
	w.add(routeText("web", "b-more", "hostnames: [more.example]\nrules: [{backendRefs: [{name: one, port: 80}]}]"))
	w.add(routeText("other", "other", "hostnames: [other.example]\nrules: [{backendRefs: [{name: one, port: 80}]}]"))
	served, plan := w.compile()
	for host, want := range map[string]string{"h1.example": "web/one:80", "more.example": "404", "other.example": "other/one:80"} {
		if got := w.answered(served, "GET http://"+host+"/"); got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
	if got := conditionsOf(t, plan, "httproutes", "b-more", 0); !strings.HasPrefix(got, "Accepted=False/TooMany ") {
		t.Errorf("the route is %s", got)
	}
}

// The certificates of a namespace are bounded, of which one listener can name many: to read
// one takes up to some milliseconds.
func TestCertificatesOfANamespaceAreBounded(t *testing.T) {
	w := newWorld(t, fmt.Sprintf(`
kind: Gateway
metadata: {name: a-greedy, namespace: infra}
spec: {listeners: [{name: many, port: 443, protocol: HTTPS, hostname: many.example, tls: {certificateRefs: [%s]}}]}
---
kind: Gateway
metadata: {name: b-more, namespace: infra}
spec: {listeners: [{name: one, port: 443, protocol: HTTPS, hostname: more.example, tls: {certificateRefs: [{name: own}]}}]}
---
kind: Gateway
metadata: {name: other, namespace: web}
spec: {listeners: [{name: one, port: 443, protocol: HTTPS, hostname: other.example, tls: {certificateRefs: [{name: own}]}}]}`,
		strings.Repeat("{name: own}, ", maxCertificates-1)+"{name: own}"))
	w.secrets["infra/own"], w.secrets["web/own"] = &tls.Certificate{}, &tls.Certificate{}
	served, _ := w.compile()
	for host, want := range map[string]bool{"many.example": true, "more.example": false, "other.example": true} {
		if got := served.Certificate(host) != nil; got != want {
			t.Errorf("%s has a certificate: %t, want %t", host, got, want)
		}
	}
}

// The listeners of a namespace are bounded, each of which can have a host. The newest pay,
// and others do not.
func TestListenersOfANamespaceAreBounded(t *testing.T) {
	var many []string
	for i := range maxListeners - 1 {
		many = append(many, fmt.Sprintf("{name: l%d, port: 80, protocol: HTTP, hostname: h%d.example}", i, i))
	}
	w := newWorld(t, fmt.Sprintf(`
kind: Gateway
metadata: {name: a-greedy, namespace: infra}
spec: {listeners: [%s]}
---
kind: Gateway
metadata: {name: b-more, namespace: infra}
spec: {listeners: [{name: last, port: 80, protocol: HTTP, hostname: last.example}, {name: refused, port: 80, protocol: HTTP, hostname: refused.example}]}
---
kind: Gateway
metadata: {name: c-most, namespace: infra}
spec: {listeners: [{name: refused, port: 80, protocol: HTTP, hostname: also.example}]}
---
kind: Gateway
metadata: {name: other, namespace: web}
spec: {listeners: [{name: one, port: 80, protocol: HTTP, hostname: other.example}]}`, strings.Join(many, ", ")))
	_, plan := w.compile()
	const refused = "Accepted=False/TooMany Conflicted=False/NoConflicts ResolvedRefs=True/ResolvedRefs Programmed=False/"
	for _, of := range []struct {
		name  string
		which int
		want  string
	}{
		{"a-greedy", maxListeners - 2, good},
		{"b-more", 0, good},
		{"b-more", 1, refused + "Invalid"},
		{"b-more", -1, "Accepted=True/ListenersNotValid Programmed=True/Programmed"},
		{"c-most", 0, refused + "NoResources"},
		{"c-most", -1, "Accepted=False/ListenersNotValid Programmed=False/NoResources"},
		{"other", 0, good},
	} {
		if got := conditionsOf(t, plan, "gateways", of.name, of.which); got != of.want {
			t.Errorf("%s, listener %d: %s, want %s", of.name, of.which, got, of.want)
		}
	}
	claimed := map[string]int{}
	for _, c := range plan.Claims {
		claimed[c.Namespace]++
	}
	if claimed["infra"] != maxListeners || claimed["web"] != 1 {
		t.Errorf("claimed hosts: %v", claimed)
	}
}

// Beyond the bound, routes are not looked at, which takes time and room.
func TestRoutesInExcessAreNotLookedAt(t *testing.T) {
	w := newWorld(t, webGateway)
	var hosts []string
	for i := range maxPlaces + 1 {
		hosts = append(hosts, fmt.Sprintf("h%d.example", i))
	}
	asked, backend := map[string]int{}, w.Backend
	w.Backend = func(namespace, service string, port int32, grpc bool) (*table.Backend, string, string) {
		asked[namespace]++
		return backend(namespace, service, port, grpc)
	}
	w.add(routeText("web", "a-greedy", "hostnames: ["+strings.Join(hosts, ", ")+"]\nrules: [{backendRefs: [{name: one, port: 80}]}]"))
	for i := range 3 {
		w.add(routeText("web", fmt.Sprintf("b-more-%d", i), "rules: [{backendRefs: [{name: one, port: 80}]}]"))
	}
	w.add(routeText("other", "other", "rules: [{backendRefs: [{name: one, port: 80}]}]"))
	_, plan := w.compile()
	if asked["web"] != 1 || asked["other"] != 1 {
		t.Errorf("backends were looked for %v times", asked)
	}
	for name, want := range map[string]string{"b-more-2": "Accepted=False/TooMany ResolvedRefs=True/ResolvedRefs", "other": "Accepted=True/Accepted ResolvedRefs=True/ResolvedRefs"} {
		if got := conditionsOf(t, plan, "httproutes", name, 0); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// The backends of a namespace are bounded, of which one rule can name many, each with all
// of its endpoints.
func TestBackendsOfANamespaceAreBounded(t *testing.T) {
	w := newWorld(t, webGateway)
	asked, backend := map[string]int{}, w.Backend
	w.Backend = func(namespace, service string, port int32, grpc bool) (*table.Backend, string, string) {
		asked[namespace]++
		return backend(namespace, service, port, grpc)
	}
	w.add(routeText("web", "a-greedy", "hostnames: [a.example]\nrules: [{backendRefs: ["+strings.Repeat("{name: one, port: 80}, ", maxBackends-1)+"{name: one, port: 80}]}]"))
	w.add(routeText("web", "b-more", "hostnames: [b.example]\nrules: [{backendRefs: [{name: one, port: 80}]}]"))
	w.add(routeText("other", "other", "hostnames: [other.example]\nrules: [{backendRefs: [{name: one, port: 80}]}]"))
	served, plan := w.compile()
	for host, want := range map[string]string{"a.example": "web/one:80", "b.example": "404", "other.example": "other/one:80"} {
		if got := w.answered(served, "GET http://"+host+"/"); got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
	if got := conditionsOf(t, plan, "httproutes", "b-more", 0); !strings.HasPrefix(got, "Accepted=False/TooMany ") || asked["web"] != maxBackends {
		t.Errorf("the route is %s, and %d backends were looked for", got, asked["web"])
	}
}

// The selector of a listener may be large, and many routes may refer to it: it is compared
// once with each namespace.
func TestSelectorsAreComparedOncePerNamespace(t *testing.T) {
	w := newWorld(t, "kind: Gateway\nmetadata: {name: gw, namespace: infra}\nspec: {listeners: [{name: a, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {team: web}}}}}]}")
	asked := map[string]int{}
	w.NamespaceLabels = func(name string) labels.Set {
		asked[name]++
		return labels.Set{"team": name}
	}
	for _, namespace := range []string{"web", "other"} {
		for i := range 5 {
			w.add(routeText(namespace, fmt.Sprintf("%s-%d", namespace, i), "rules: [{backendRefs: [{name: one, port: 80}]}]"))
		}
	}
	_, plan := w.compile()
	if asked["web"] != 1 || asked["other"] != 1 || attachedTo(plan, "gw", 0) != 5 {
		t.Errorf("labels were read %v times, and %d routes are attached", asked, attachedTo(plan, "gw", 0))
	}
}

// What references cost does not grow with the ReferenceGrants of the namespace that they
// lead to, nor with lists beyond what the definition of ReferenceGrants allows.
func TestManyGrants(t *testing.T) {
	list := func(format string) string {
		var all []string
		for i := range maxOfGrant + 1 {
			all = append(all, fmt.Sprintf(format, i))
		}
		return strings.Join(all, ", ")
	}
	w := newWorld(t, "kind: ReferenceGrant\nmetadata: {name: many, namespace: apps}\nspec: {from: ["+
		list("{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: n%d}")+"], to: ["+list(`{group: "", kind: Service, name: s%d}`)+"]}")
	c := &compiler{grants: map[grant]bool{}}
	for range 1000 {
		c.addGrant(w.Grants[0])
	}
	if len(c.grants) != maxOfGrant*maxOfGrant {
		t.Errorf("%d references are allowed", len(c.grants))
	}
	for name, want := range map[string]bool{"s1": true, "s16": false, "": false} {
		if got := c.granted(KindHTTP, "n1", "Service", "apps", name); got != want {
			t.Errorf("Service %q: %t, want %t", name, got, want)
		}
	}
}

// A request is for the most exact listener of its port alone, so that a listener for the
// routes of some namespaces keeps its names from those at a wider one.
func TestListenersAreIsolated(t *testing.T) {
	w := newWorld(t, `
kind: Gateway
metadata: {name: gw, namespace: infra}
spec:
  listeners:
  - {name: any, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}
  - {name: admin, port: 80, protocol: HTTP, hostname: admin.example}
  - {name: https, port: 443, protocol: HTTPS, hostname: shop.example, tls: {certificateRefs: [{name: own}]}}
---
kind: Gateway
metadata: {name: other, namespace: infra}
spec: {listeners: [{name: wild, port: 80, protocol: HTTP, hostname: "*.wild.example"}]}`)
	w.secrets["infra/own"] = &tls.Certificate{}
	for _, route := range []struct{ namespace, name, section, hosts, path string }{
		{"infra", "admin", "admin", "", "/a"},
		{"web", "thief", "any", "admin.example, x.wild.example", "/"},
		{"web", "wide", "any", "", "/"},
	} {
		w.add(fmt.Sprintf("kind: HTTPRoute\nmetadata: {name: %s, namespace: %s}\nspec: {parentRefs: [{name: gw, namespace: infra, sectionName: %s}], hostnames: [%s], rules: [{matches: [{path: {value: %s}}], backendRefs: [{name: %s, port: 80}]}]}",
			route.name, route.namespace, route.section, route.hosts, route.path, route.name))
	}
	served, _ := w.compile()
	for target, want := range map[string]string{
		"admin.example/a": "infra/admin:80", "admin.example/x": "404", "x.wild.example/x": "404", "a.b.wild.example/x": "404",
		"other.example/x": "web/wide:80", "shop.example/x": "web/wide:80", // the listener of the latter has another port
	} {
		if got := w.answered(served, "GET http://"+target); got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
}

// A route counts at each listener that it attaches to, also at those with the same hosts:
// what is kept of a route must not be as much as parents, listeners and hosts multiplied.
func TestAttachmentsAreBounded(t *testing.T) {
	w := newWorld(t, "kind: Gateway\nmetadata: {name: gw, namespace: infra}\nspec: {listeners: [{name: a, port: 80, protocol: HTTP}, {name: b, port: 80, protocol: HTTP, hostname: \"*.example\"}]}")
	var hosts []string
	for i := range maxPlaces/2 + 1 {
		hosts = append(hosts, fmt.Sprintf("h%d.example", i))
	}
	w.add(routeText("infra", "wide", "hostnames: ["+strings.Join(hosts, ", ")+"]\nrules: [{backendRefs: [{name: one, port: 80}]}]"))
	w.add(routeText("infra", "without-rules", "hostnames: [more.example]"))
	_, plan := w.compile()
	for _, name := range []string{"wide", "without-rules"} {
		if got := conditionsOf(t, plan, "httproutes", name, 0); !strings.HasPrefix(got, "Accepted=False/TooMany ") {
			t.Errorf("the route %s is %s", name, got)
		}
	}
	if len(plan.Claims) != 1 { // that of the listener
		t.Errorf("%d hosts are claimed", len(plan.Claims))
	}
}

// A set of hosts overlaps with a host if one of its hosts does.
func TestHostSet(t *testing.T) {
	all := []string{"", "*.example", "*.a.example", "*.b.a.example", "example", "a.example", "b.a.example", "ba.example", "other"}
	for _, one := range all {
		for _, two := range all {
			s := (&listener{hosts: map[string]*hostSet{}}).hostsOf(KindHTTP)
			s.add([]string{"unlike", one})
			_, want := commonHost(one, two)
			if got := s.overlaps(two); got != want {
				t.Errorf("%q overlaps with %q: %v", one, two, got)
			}
		}
	}
}

// Listeners with TLS share a port by their names, and UDP has ports of its own.
func TestListenersThatShareAPort(t *testing.T) {
	w := newWorld(t, `
kind: Gateway
metadata: {name: gw, namespace: infra}
spec:
  listeners:
  - {name: https, port: 443, protocol: HTTPS, hostname: a.example, tls: {certificateRefs: [{name: own}]}}
  - {name: tls, port: 443, protocol: TLS, hostname: b.example, tls: {mode: Passthrough}}
  - {name: udp, port: 443, protocol: UDP}
  - {name: http, port: 80, protocol: HTTP, hostname: a.example}
  - {name: tcp, port: 80, protocol: TCP}`)
	w.secrets["infra/own"] = &tls.Certificate{}
	_, plan := w.compile()
	for i, want := range []string{
		"Accepted=True/Accepted Conflicted=False/NoConflicts",
		"Accepted=False/UnsupportedProtocol Conflicted=False/NoConflicts",
		"Accepted=False/UnsupportedProtocol Conflicted=False/NoConflicts",
		"Accepted=False/ProtocolConflict Conflicted=True/ProtocolConflict",
		"Accepted=False/UnsupportedProtocol Conflicted=True/ProtocolConflict",
	} {
		if got := conditionsOf(t, plan, "gateways", "gw", i); !strings.HasPrefix(got, want+" ") {
			t.Errorf("listener %d is %s", i, got)
		}
	}
}

// The specification of GRPCRouteRule.backendRefs: a backend that there is not answers
// UNAVAILABLE, which is 503 in HTTP.
func TestMissingBackendsOfGRPC(t *testing.T) {
	w := newWorld(t, webGateway)
	w.add("kind: GRPCRoute\nmetadata: {name: rpc, namespace: web}\nspec: {parentRefs: [{name: gw, namespace: infra}], rules: [{backendRefs: [{name: none, port: 80}]}, {backendRefs: []}]}")
	_, plan := w.compile()
	for i, p := range plan.routes[0].places {
		if b := p.route.Targets[0].Backend; b.Invalid || len(b.Endpoints()) > 0 {
			t.Errorf("rule %d has the backend %+v", i, b)
		}
	}
	if got, want := conditionsOf(t, plan, "grpcroutes", "rpc", 0), "Accepted=True/Accepted ResolvedRefs=False/BackendNotFound"; got != want {
		t.Errorf("the route is %s, want %s", got, want)
	}
}

// Of two routes with the same match, the older one wins, whichever was listed first.
func TestTheOldestRouteWins(t *testing.T) {
	w := newWorld(t, webGateway)
	for i, name := range []string{"newer", "older"} {
		w.add(routeText("web", name, "hostnames: [a.example]\nrules: [{backendRefs: [{name: "+name+", port: 80}]}]"))
		w.Routes[i].CreationTimestamp.Time = w.Routes[i].CreationTimestamp.AddDate(2026-i, 0, 0)
	}
	served, _ := w.compile()
	if got := w.answered(served, "GET http://a.example/"); got != "web/older:80" {
		t.Errorf("the request goes to %s", got)
	}
}
