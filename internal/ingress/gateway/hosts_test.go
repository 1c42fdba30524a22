package gateway

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"

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
