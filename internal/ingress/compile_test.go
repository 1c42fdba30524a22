package ingress

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/ingress/gateway"
	"github.com/coracle-io/coracle/internal/ingress/table"
)

// objects are the objects of a test.
type objects struct {
	ingresses []*networkingv1.Ingress
	services  []*v1.Service
	slices    []*discoveryv1.EndpointSlice
	secrets   map[string]*tls.Certificate // by NAMESPACE/NAME
	foreign   []string                    // NAMESPACE/ADDRESS of addresses that no pod has
	read      *int                        // counts how often secrets are asked for; may be nil
	gateways  gateway.Source
}

func (o objects) compile() (*table.Table, map[types.UID][]problem) {
	t, _, problems, _ := compile(source{
		ingresses: o.ingresses, gateways: o.gateways,
		service: func(namespace, name string) *v1.Service {
			for _, s := range o.services {
				if s.Namespace == namespace && s.Name == name {
					return s
				}
			}
			return nil
		},
		slices: func(namespace, service string) (found []*discoveryv1.EndpointSlice) {
			for _, s := range o.slices {
				if s.Namespace == namespace && s.Labels[discoveryv1.LabelServiceName] == service {
					found = append(found, s)
				}
			}
			return found
		},
		isPod: func(namespace string, a netip.Addr) bool {
			return !slices.Contains(o.foreign, namespace+"/"+a.String())
		},
		certificate: func(namespace, secret string) (*tls.Certificate, error) {
			if o.read != nil {
				*o.read++
			}
			if c := o.secrets[namespace+"/"+secret]; c != nil {
				return c, nil
			}
			return nil, errors.New("none")
		},
	})
	return t, problems
}

// newIngress returns an Ingress of the class of the controller. Those with a greater age
// are older.
func newIngress(namespace, name string, age int, rules ...networkingv1.IngressRule) *networkingv1.Ingress {
	return &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name),
			CreationTimestamp: metav1.NewTime(time.Unix(1_000_000, 0).Add(-time.Duration(age) * time.Hour)),
		},
		Spec: networkingv1.IngressSpec{IngressClassName: new(DefaultClass), Rules: rules},
	}
}

// newRule returns a rule with paths such as "/a=web:80" or "/a=web:http", of the type
// Prefix, and Exact with "==".
func newRule(host string, paths ...string) networkingv1.IngressRule {
	http := &networkingv1.HTTPIngressRuleValue{}
	for _, text := range paths {
		path, to, _ := strings.Cut(text, "=")
		kind := networkingv1.PathTypePrefix
		if exact, ok := strings.CutPrefix(to, "="); ok {
			kind, to = networkingv1.PathTypeExact, exact
		}
		http.Paths = append(http.Paths, networkingv1.HTTPIngressPath{Path: path, PathType: &kind, Backend: *newBackend(to)})
	}
	return networkingv1.IngressRule{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: http}}
}

// newBackend returns a backend such as web:80 or web:http.
func newBackend(text string) *networkingv1.IngressBackend {
	service, port, _ := strings.Cut(text, ":")
	b := &networkingv1.IngressServiceBackend{Name: service}
	if _, err := fmt.Sscan(port, &b.Port.Number); err != nil {
		b.Port.Name = port
	}
	return &networkingv1.IngressBackend{Service: b}
}

// newService returns a Service with the port http, 80.
func newService(namespace, name string) *v1.Service {
	return &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1.ServiceSpec{Type: v1.ServiceTypeClusterIP, Ports: []v1.ServicePort{{Name: "http", Port: 80, Protocol: v1.ProtocolTCP}}},
	}
}

// newSlice returns an EndpointSlice of a Service with the port http, 8080, and ready
// endpoints.
func newSlice(namespace, service string, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: service + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080)), Protocol: new(v1.ProtocolTCP)}},
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}})
	}
	return s
}

// answered returns who answers a request: the Ingress and the endpoints.
func answered(t *testing.T, of *table.Table, host, path string) string {
	t.Helper()
	p, err := table.ParsePath(path)
	if err != nil {
		t.Fatal(err)
	}
	r := of.Match(host, p, nil)
	if r == nil {
		return "nobody"
	}
	text := r.Namespace + "/" + r.Name
	for _, e := range r.Targets[0].Backend.Endpoints() {
		text += " " + e.String()
	}
	return text
}

// reasons returns the reasons of the problems of an Ingress, sorted.
func reasons(problems map[types.UID][]problem, i *networkingv1.Ingress) string {
	var all []string
	for _, p := range problems[i.UID] {
		all = append(all, p.reason)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func TestRoutes(t *testing.T) {
	shop := newIngress("web", "shop", 0,
		newRule("shop.example", "/=shop:80", "/api=api:http", "/api/v1==shop:http"),
		newRule("*.Shop.example", "/=api:80"),
		networkingv1.IngressRule{Host: "rest.example"}, // for the default backend
	)
	shop.Spec.DefaultBackend = newBackend("rest:80")
	shop.Spec.Rules[0].HTTP.Paths[0].PathType = new(networkingv1.PathTypeImplementationSpecific)
	shop.Spec.Rules[0].HTTP.Paths[0].Path = ""
	o := objects{
		ingresses: []*networkingv1.Ingress{shop},
		services:  []*v1.Service{newService("web", "shop"), newService("web", "api"), newService("web", "rest"), newService("other", "shop")},
		slices: []*discoveryv1.EndpointSlice{
			newSlice("web", "shop", "10.0.0.1", "10.0.0.2"), newSlice("web", "api", "10.0.0.3"), newSlice("web", "rest", "10.0.0.4"), newSlice("other", "shop", "10.0.0.9"),
		},
	}
	served, problems := o.compile()
	if len(problems) > 0 {
		t.Errorf("problems %v", problems)
	}
	for request, want := range map[[2]string]string{
		{"shop.example", "/x"}:        "web/shop 10.0.0.1:8080 10.0.0.2:8080",
		{"shop.example", "/api/v2"}:   "web/shop 10.0.0.3:8080",
		{"shop.example", "/api/v1"}:   "web/shop 10.0.0.1:8080 10.0.0.2:8080",
		{"shop.example", "/api/v1/"}:  "web/shop 10.0.0.3:8080",
		{"a.shop.example", "/api"}:    "web/shop 10.0.0.3:8080",
		{"a.b.shop.example", "/api"}:  "web/shop 10.0.0.4:8080",
		{"rest.example", "/"}:         "web/shop 10.0.0.4:8080",
		{"unknown.example", "/x/y/z"}: "web/shop 10.0.0.4:8080",
	} {
		if got := answered(t, served, request[0], request[1]); got != want {
			t.Errorf("%v: %s, want %s", request, got, want)
		}
	}
}

// A host belongs to the namespace whose Ingress named it first, with all of its paths
// and its certificate. Ingresses of one namespace share a host.
func TestHostsBelongToTheOldestNamespace(t *testing.T) {
	old := newIngress("one", "old", 2, newRule("a.example", "/x=web:80"))
	same := newIngress("one", "same", 1, newRule("a.example", "/x=web:80", "/y=web:80"))
	thief := newIngress("two", "thief", 0, newRule("A.example", "/z=web:80"), newRule("b.example", "/=web:80"))
	thief.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{"a.example"}, SecretName: "stolen"}, {Hosts: []string{"b.example"}, SecretName: "own"}}
	stolen, own := &tls.Certificate{}, &tls.Certificate{}
	o := objects{
		ingresses: []*networkingv1.Ingress{thief, same, old},
		services:  []*v1.Service{newService("one", "web"), newService("two", "web")},
		secrets:   map[string]*tls.Certificate{"two/stolen": stolen, "two/own": own},
	}
	served, problems := o.compile()
	for request, want := range map[[2]string]string{
		{"a.example", "/x"}: "one/old", {"a.example", "/y"}: "one/same", {"a.example", "/z"}: "nobody", {"b.example", "/z"}: "two/thief",
	} {
		if got := answered(t, served, request[0], request[1]); got != want {
			t.Errorf("%v: %s, want %s", request, got, want)
		}
	}
	if served.Certificate("a.example") != nil || served.Certificate("b.example") != own {
		t.Error("a certificate for the host of another namespace is used, or that for its own is not")
	}
	for i, want := range map[*networkingv1.Ingress]string{old: "", same: pathConflict, thief: hostConflict} {
		if got := reasons(problems, i); got != want {
			t.Errorf("%s has the problems %q, want %q", i.Name, got, want)
		}
	}
	for _, p := range problems[thief.UID] {
		if strings.Contains(p.message, "one/") || strings.Contains(p.message, old.Name+" ") {
			t.Errorf("the message %q tells of another namespace", p.message)
		}
	}
}

// What a host does not serve, and a host without a certificate of its own, do not go to
// another namespace, which would answer in the name of the host: neither below a wildcard
// of it, nor by rules or a default backend for all hosts.
func TestOtherNamespacesDoNotAnswerForAHost(t *testing.T) {
	wide := newIngress("two", "wide", 3, newRule("*.example", "/=web:80"), newRule("", "/=web:80"))
	wide.Spec.DefaultBackend = newBackend("web:80")
	wide.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{"*.example"}, SecretName: "wide"}}
	app := newIngress("one", "app", 2, newRule("a.example", "/x=web:80"))
	named := newIngress("one", "named", 1)
	named.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{"b.example"}}}
	wildcard := &tls.Certificate{}
	served, problems := objects{
		ingresses: []*networkingv1.Ingress{wide, app, named}, services: []*v1.Service{newService("one", "web"), newService("two", "web")},
		secrets: map[string]*tls.Certificate{"two/wide": wildcard},
	}.compile()
	for request, want := range map[[2]string]string{
		{"a.example", "/x"}: "one/app", {"a.example", "/y"}: "nobody", {"b.example", "/y"}: "nobody", {"c.example", "/y"}: "two/wide", {"other", "/y"}: "two/wide",
	} {
		if got := answered(t, served, request[0], request[1]); got != want {
			t.Errorf("%v: %s, want %s", request, got, want)
		}
	}
	if served.Certificate("a.example") != nil || served.Certificate("b.example") != nil || served.Certificate("c.example") != wildcard {
		t.Error("a host has the certificate of another namespace, or the wildcard's own has not")
	}
	if len(problems) > 0 {
		t.Errorf("problems %v", problems)
	}
}

// One default backend is that of all hosts: the oldest. That of another Ingress is for
// the hosts of its rules.
func TestDefaultBackends(t *testing.T) {
	all := newIngress("one", "all", 2)
	all.Spec.DefaultBackend = newBackend("web:80")
	late := newIngress("two", "late", 1)
	late.Spec.DefaultBackend = newBackend("web:80")
	own := newIngress("two", "own", 0, newRule("own.example", "/a=web:80"))
	own.Spec.DefaultBackend = newBackend("web:80")
	served, problems := objects{ingresses: []*networkingv1.Ingress{own, late, all}, services: []*v1.Service{newService("one", "web"), newService("two", "web")}}.compile()
	for host, want := range map[string]string{"any.example": "one/all", "own.example": "two/own"} {
		if got := answered(t, served, host, "/b"); got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
	if got := reasons(problems, late); got != hostConflict || len(problems[all.UID])+len(problems[own.UID]) > 0 {
		t.Errorf("problems %v", problems)
	}
}

func TestBackends(t *testing.T) {
	with := func(change func(*v1.Service)) *v1.Service {
		s := newService("n", "web")
		change(s)
		return s
	}
	appProtocol := func(p string) *v1.Service { return with(func(s *v1.Service) { s.Spec.Ports[0].AppProtocol = &p }) }
	for what, test := range map[string]struct {
		service  *v1.Service
		backend  *networkingv1.IngressBackend
		reason   string // "" if the backend has its endpoints
		protocol table.Protocol
	}{
		"by number":     {newService("n", "web"), newBackend("web:80"), "", table.HTTP1},
		"by name":       {newService("n", "web"), newBackend("web:http"), "", table.HTTP1},
		"h2c":           {appProtocol("kubernetes.io/h2c"), newBackend("web:80"), "", table.H2C},
		"WebSocket":     {appProtocol("kubernetes.io/ws"), newBackend("web:80"), "", table.HTTP1},
		"TLS":           {appProtocol("https"), newBackend("web:80"), unsupportedBackend, ""},
		"no Service":    {nil, newBackend("web:80"), backendNotFound, ""},
		"no such port":  {newService("n", "web"), newBackend("web:81"), backendNotFound, ""},
		"no such name":  {newService("n", "web"), newBackend("web:https"), backendNotFound, ""},
		"a port of UDP": {with(func(s *v1.Service) { s.Spec.Ports[0].Protocol = v1.ProtocolUDP }), newBackend("web:80"), backendNotFound, ""},
		"a name outside": {with(func(s *v1.Service) {
			s.Spec.Type, s.Spec.ExternalName = v1.ServiceTypeExternalName, "metadata.internal"
		}), newBackend("web:80"), unsupportedBackend, ""},
		"another namespace": {func() *v1.Service { s := newService("other", "web"); return s }(), newBackend("web:80"), backendNotFound, ""},
		"a resource":        {newService("n", "web"), &networkingv1.IngressBackend{Resource: &v1.TypedLocalObjectReference{Kind: "Bucket", Name: "b"}}, unsupportedBackend, ""},
	} {
		i := newIngress("n", "i", 0, newRule("a.example", "/=web:80"))
		i.Spec.Rules[0].HTTP.Paths[0].Backend = *test.backend
		o := objects{ingresses: []*networkingv1.Ingress{i}, slices: []*discoveryv1.EndpointSlice{newSlice("n", "web", "10.0.0.1"), newSlice("other", "web", "10.0.0.2")}}
		if test.service != nil {
			o.services = append(o.services, test.service)
		}
		served, problems := o.compile()
		if got := reasons(problems, i); got != test.reason {
			t.Errorf("%s: problems %q, want %q", what, got, test.reason)
		}
		want := "n/i 10.0.0.1:8080"
		if test.reason != "" {
			want = "n/i" // and no other route answers
		}
		if got := answered(t, served, "a.example", "/"); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
		if r := served.Match("a.example", table.Path{}, nil); test.reason == "" && r.Targets[0].Backend.Protocol != test.protocol {
			t.Errorf("%s: protocol %s, want %s", what, r.Targets[0].Backend.Protocol, test.protocol)
		}
	}
}

// Endpoints that terminate and serve count while no other is ready, as in kube-proxy.
// Addresses that only this machine reaches never count.
func TestEndpoints(t *testing.T) {
	endpoint := func(address string, ready, serving, terminating *bool) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: ready, Serving: serving, Terminating: terminating}}
	}
	yes, no := new(true), new(false)
	for what, test := range map[string]struct {
		endpoints []discoveryv1.Endpoint
		want      string
	}{
		"ready":                  {[]discoveryv1.Endpoint{endpoint("10.0.0.1", yes, yes, no), endpoint("10.0.0.2", nil, nil, nil), endpoint("10.0.0.3", no, no, no)}, "[10.0.0.1:8080 10.0.0.2:8080]"},
		"ready and terminating":  {[]discoveryv1.Endpoint{endpoint("10.0.0.1", no, yes, yes), endpoint("10.0.0.2", yes, yes, no)}, "[10.0.0.2:8080]"},
		"terminating":            {[]discoveryv1.Endpoint{endpoint("10.0.0.1", no, yes, yes), endpoint("10.0.0.2", no, no, yes)}, "[10.0.0.1:8080]"},
		"twice":                  {[]discoveryv1.Endpoint{endpoint("10.0.0.1", yes, yes, no), endpoint("10.0.0.1", yes, yes, no)}, "[10.0.0.1:8080]"},
		"addresses of this node": {[]discoveryv1.Endpoint{endpoint("127.0.0.1", yes, yes, no), endpoint("169.254.169.254", yes, yes, no), endpoint("0.0.0.0", yes, yes, no), endpoint("::ffff:127.0.0.1", yes, yes, no)}, "[]"},
		"none":                   {nil, "[]"},
	} {
		slice := newSlice("n", "web")
		slice.Endpoints = test.endpoints
		got, foreign := endpointsOf([]*discoveryv1.EndpointSlice{slice}, "http", anyAddress)
		if fmt.Sprint(got) != test.want || foreign.IsValid() {
			t.Errorf("%s: %v and %v, want %s", what, got, foreign, test.want)
		}
	}
	v6 := newSlice("n", "web", "2001:db8::1")
	v6.AddressType = discoveryv1.AddressTypeIPv6
	want := []netip.AddrPort{netip.MustParseAddrPort("[2001:db8::1]:8080")}
	if got, _ := endpointsOf([]*discoveryv1.EndpointSlice{v6}, "http", anyAddress); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got, _ := endpointsOf([]*discoveryv1.EndpointSlice{v6, newSlice("n", "web", "10.0.0.1")}, "http", anyAddress); fmt.Sprint(got) != "[10.0.0.1:8080]" {
		t.Errorf("of both families: %v", got)
	}
}

func anyAddress(netip.Addr) bool { return true }

// The node reaches what a tenant's pods may not: its own address, the addresses of
// Services, pods of others behind network policies. Only pods of the namespace get
// requests, whatever endpoints say.
func TestEndpointsAreOwnPods(t *testing.T) {
	i := newIngress("n", "i", 0, newRule("a.example", "/=web:80"))
	hostile := newSlice("n", "web", "192.0.2.1", "10.96.0.1", "10.0.0.1", "10.0.0.7")
	o := objects{
		ingresses: []*networkingv1.Ingress{i}, services: []*v1.Service{newService("n", "web")}, slices: []*discoveryv1.EndpointSlice{hostile},
		foreign: []string{"n/192.0.2.1", "n/10.96.0.1", "n/10.0.0.7"},
	}
	served, problems := o.compile()
	if got := answered(t, served, "a.example", "/"); got != "n/i 10.0.0.1:8080" {
		t.Errorf("answered by %s", got)
	}
	if want := []problem{{unsupportedBackend, "Service web: its endpoint 10.0.0.7 is no pod of the namespace, and gets no requests"}}; !slices.Equal(problems[i.UID], want) {
		t.Errorf("problems %v, want %v", problems[i.UID], want)
	}
	// A pod that is not known yet is no problem, and no endpoint.
	for k := range hostile.Endpoints {
		hostile.Endpoints[k].TargetRef = &v1.ObjectReference{Kind: "Pod", Name: "p"}
	}
	served, problems = o.compile()
	if got := answered(t, served, "a.example", "/"); got != "n/i 10.0.0.1:8080" || len(problems) > 0 {
		t.Errorf("answered by %s, problems %v", got, problems)
	}
}

// The addresses of a pod that has ended are not its own any more.
func TestAddressesOfPods(t *testing.T) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}, Status: v1.PodStatus{PodIPs: []v1.PodIP{{IP: "10.0.0.1"}, {IP: "2001:db8::1"}, {IP: "malformed"}}}}
	for phase, want := range map[v1.PodPhase]string{v1.PodRunning: "[n/10.0.0.1 n/2001:db8::1]", v1.PodPending: "[n/10.0.0.1 n/2001:db8::1]", v1.PodFailed: "[]", v1.PodSucceeded: "[]"} {
		p.Status.Phase = phase
		reduced, err := reduce(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, of := range []*v1.Pod{p, reduced.(*v1.Pod)} {
			if got := fmt.Sprint(podKeys(of)); got != want {
				t.Errorf("%s: %s, want %s", phase, got, want)
			}
		}
	}
}

// What one namespace adds takes nothing from another.
func TestRoutesOfANamespaceAreBounded(t *testing.T) {
	greedy, other := newIngress("greedy", "many", 1, newRule("greedy.example")), newIngress("other", "one", 2, newRule("other.example", "/=web:80"))
	for n := range maxPathsOfNamespace + 10 {
		greedy.Spec.Rules[0].HTTP.Paths = append(greedy.Spec.Rules[0].HTTP.Paths, newRule("", fmt.Sprintf("/%d=web:80", n)).HTTP.Paths...)
	}
	var hosts []string
	for n := range maxCertificatesOfNamespace + 10 {
		hosts = append(hosts, fmt.Sprintf("%d.greedy.example", n))
	}
	greedy.Spec.TLS = []networkingv1.IngressTLS{{Hosts: hosts, SecretName: "own"}}
	for range 100 { // to read a certificate takes time, also one that is broken
		greedy.Spec.TLS = append(greedy.Spec.TLS, networkingv1.IngressTLS{Hosts: hosts[:1], SecretName: "broken"}, networkingv1.IngressTLS{Hosts: []string{"other.example"}, SecretName: "broken"})
	}
	read := 0
	served, problems := objects{
		ingresses: []*networkingv1.Ingress{greedy, other}, services: []*v1.Service{newService("greedy", "web"), newService("other", "web")},
		secrets: map[string]*tls.Certificate{"greedy/own": {}}, read: &read,
	}.compile()
	if read != 1 {
		t.Errorf("%d certificates were read, want 1", read)
	}
	for path, want := range map[string]string{fmt.Sprintf("/%d", maxPathsOfNamespace-1): "greedy/many", fmt.Sprintf("/%d", maxPathsOfNamespace): "nobody"} {
		if got := answered(t, served, "greedy.example", path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	if got := answered(t, served, "other.example", "/"); got != "other/one" {
		t.Errorf("the other namespace: %s", got)
	}
	if served.Certificate(hosts[maxCertificatesOfNamespace-1]) == nil || served.Certificate(hosts[maxCertificatesOfNamespace]) != nil {
		t.Error("the certificates of a namespace are not bounded as they should")
	}
	if got := reasons(problems, greedy); got != hostConflict+" "+tooMany+" "+tooMany { // of both, once each
		t.Errorf("problems %s", got)
	}
}

// Hosts that are too many for a namespace belong to nobody, also without paths: a host takes
// much more room in the table than in an Ingress.
func TestHostsOfANamespaceAreBounded(t *testing.T) {
	greedy, other := newIngress("greedy", "many", 2), newIngress("other", "one", 1, newRule("other.example", "/=web:80"))
	for n := range maxHostsOfNamespace {
		greedy.Spec.Rules = append(greedy.Spec.Rules, networkingv1.IngressRule{Host: fmt.Sprintf("%d.greedy.example", n)})
	}
	greedy.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{"tls.greedy.example"}, SecretName: "own"}}
	young := newIngress("greedy", "young", 0, newRule("0.greedy.example", "/=web:80"), newRule("young.example", "/=web:80"))
	served, problems := objects{
		ingresses: []*networkingv1.Ingress{greedy, other, young}, services: []*v1.Service{newService("greedy", "web"), newService("other", "web")},
		secrets: map[string]*tls.Certificate{"greedy/own": {}},
	}.compile()
	for host, want := range map[string]string{"0.greedy.example": "greedy/young", "young.example": "nobody", "other.example": "other/one"} {
		if got := answered(t, served, host, "/"); got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
	if served.Certificate("tls.greedy.example") != nil {
		t.Error("a host beyond the bound has a certificate")
	}
	for _, i := range []*networkingv1.Ingress{greedy, young} {
		if got := reasons(problems, i); got != tooMany {
			t.Errorf("problems of %s: %s, want %s", i.Name, got, tooMany)
		}
	}
	if got := reasons(problems, other); got != "" {
		t.Errorf("problems of another namespace: %s", got)
	}
}

// Thousands of rules that have no effect take neither long nor thousands of events.
func TestProblemsAreBounded(t *testing.T) {
	first, second := newIngress("n", "first", 1, newRule("a.example")), newIngress("n", "second", 0, newRule("a.example"))
	for n := range maxPathsOfNamespace / 2 {
		path := newRule("", fmt.Sprintf("/%d=web:80", n)).HTTP.Paths
		first.Spec.Rules[0].HTTP.Paths = append(first.Spec.Rules[0].HTTP.Paths, path...)
		second.Spec.Rules[0].HTTP.Paths = append(second.Spec.Rules[0].HTTP.Paths, path...)
	}
	_, problems := objects{ingresses: []*networkingv1.Ingress{first, second}, services: []*v1.Service{newService("n", "web")}}.compile()
	if n := len(problems[second.UID]); n != maxProblems || len(problems[first.UID]) > 0 {
		t.Errorf("%d and %d problems, want none and %d", len(problems[first.UID]), n, maxProblems)
	}
}

func TestPathsThatNoRequestHas(t *testing.T) {
	i := newIngress("n", "i", 0, newRule("a.example", "/"+strings.Repeat("x", maxPathLength)+"=web:80", "/%zz=web:80", "/ok=web:80"))
	served, problems := objects{ingresses: []*networkingv1.Ingress{i}, services: []*v1.Service{newService("n", "web")}}.compile()
	if got := reasons(problems, i); got != invalidPath+" "+invalidPath {
		t.Errorf("problems %s", got)
	}
	if got := answered(t, served, "a.example", "/ok"); got != "n/i" {
		t.Errorf("a path beside them: %s", got)
	}
	for _, p := range problems[i.UID] {
		if len(p.message) > maxMessage+3 {
			t.Errorf("a message has %d bytes", len(p.message))
		}
	}
}

func TestAnnotations(t *testing.T) {
	for _, test := range []struct {
		annotations map[string]string
		want        table.Route
		wrong       bool
	}{
		{nil, table.Route{AnswerTimeout: defaultTimeout}, false},
		{map[string]string{RedirectAnnotation: "true", MaxBodyAnnotation: "10Mi", TimeoutAnnotation: "5m"}, table.Route{RedirectToHTTPS: true, MaxBody: 10 << 20, AnswerTimeout: 5 * time.Minute}, false},
		{map[string]string{MaxBodyAnnotation: "0", TimeoutAnnotation: "0s"}, table.Route{}, false},
		{map[string]string{RedirectAnnotation: "yes"}, table.Route{AnswerTimeout: defaultTimeout}, true},
		{map[string]string{MaxBodyAnnotation: "-1"}, table.Route{AnswerTimeout: defaultTimeout}, true},
		{map[string]string{MaxBodyAnnotation: "1e999999999"}, table.Route{AnswerTimeout: defaultTimeout}, true},
		{map[string]string{TimeoutAnnotation: "-5s"}, table.Route{AnswerTimeout: defaultTimeout}, true},
		{map[string]string{TimeoutAnnotation: "soon"}, table.Route{AnswerTimeout: defaultTimeout}, true},
	} {
		got, err := parseAnnotations(test.annotations)
		if (err != nil) != test.wrong || got.RedirectToHTTPS != test.want.RedirectToHTTPS || got.MaxBody != test.want.MaxBody || got.AnswerTimeout != test.want.AnswerTimeout {
			t.Errorf("%v: %+v, %v", test.annotations, got, err)
		}
	}
}
