package services_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/apiserver"
	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/apiserver/services"
	"github.com/coracle-io/coracle/internal/resource/core"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/mem"
)

// start runs an API server with an allocator of the given ranges.
func start(t *testing.T, on store.Store, ports services.PortRange, cidrs ...string) *apiservertest.Server {
	t.Helper()
	return apiservertest.StartOn(t, on, func(c *apiserver.Config) {
		config := services.Config{
			NodePorts: ports, Store: on, Clock: clock.RealClock{},
			Services: c.Registry.Cache.At("services/specs"), Endpoints: c.Registry.Cache.At("services/endpoints"),
			Addresses: c.Registry.Cache.At("ipaddresses"), Ranges: c.Registry.Cache.At("servicecidrs"),
		}
		for _, cidr := range cidrs {
			config.CIDRs = append(config.CIDRs, netip.MustParsePrefix(cidr))
		}
		allocator, err := services.New(config, core.AssignServiceFamilies)
		if err != nil {
			t.Fatal(err)
		}
		c.Registry.Lifecycles = map[schema.GroupResource]registry.Lifecycle{{Resource: "services"}: allocator}
	})
}

var nodePorts = services.PortRange{First: 30000, Last: 32767}

func send(t *testing.T, s *apiservertest.Server, method, path, body string) (int, []byte) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, data
}

const path = "/api/v1/namespaces/default/services"

func body(name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"name":%q},"spec":{"ports":[{"port":80}]%s}}`, name, spec)
}

func service(t *testing.T, s *apiservertest.Server, want int, method, path, body string) *corev1.Service {
	t.Helper()
	code, data := send(t, s, method, path, body)
	if code != want {
		t.Fatalf("%s %s: %d %s", method, path, code, data)
	}
	out := &corev1.Service{}
	if err := json.Unmarshal(data, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// addresses returns the allocated cluster IPs.
func addresses(t *testing.T, s *apiservertest.Server) string {
	t.Helper()
	_, data := send(t, s, "GET", "/apis/networking.k8s.io/v1/ipaddresses", "")
	var list networkingv1.IPAddressList
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return strings.Join(names, " ")
}

func TestAddresses(t *testing.T) {
	s := start(t, mem.New(), nodePorts, "10.96.0.0/24")
	a := service(t, s, 201, "POST", path, body("a", ""))
	ip, err := netip.ParseAddr(a.Spec.ClusterIP)
	if err != nil || !netip.MustParsePrefix("10.96.0.0/24").Contains(ip) || len(a.Spec.ClusterIPs) != 1 || a.Spec.ClusterIPs[0] != a.Spec.ClusterIP ||
		len(a.Spec.IPFamilies) != 1 || a.Spec.IPFamilies[0] != corev1.IPv4Protocol || *a.Spec.IPFamilyPolicy != corev1.IPFamilyPolicySingleStack {
		t.Fatalf("%+v", a.Spec)
	}
	if addresses(t, s) != a.Spec.ClusterIP {
		t.Errorf("taken: %s", addresses(t, s))
	}
	given := service(t, s, 201, "POST", path, body("given", `,"clusterIP":"10.96.0.10"`))
	if given.Spec.ClusterIP != "10.96.0.10" {
		t.Errorf("%+v", given.Spec)
	}
	for _, test := range []struct{ spec, message string }{
		{`,"clusterIP":"10.96.0.10"`, `failed to allocate IP 10.96.0.10: provided IP is already allocated`},
		{`,"clusterIP":"10.97.0.10"`, `failed to allocate IP 10.97.0.10: the provided network does not match the current range`},
		{`,"clusterIP":"10.96.0.0"`, `failed to allocate IP 10.96.0.0: the provided IP (10.96.0.0) is not in the valid range. The range of valid IPs is 10.96.0.0/24`},
		{`,"clusterIP":"10.96.0.255"`, `is not in the valid range`},
		{`,"ipFamilies":["IPv6"]`, `spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster`},
		{`,"ipFamilyPolicy":"RequireDualStack"`, `this cluster is not configured for dual-stack services`},
	} {
		if code, data := send(t, s, "POST", path, body("refused", test.spec)); code != 422 || !strings.Contains(string(data), test.message) {
			t.Errorf("%s: %d %s", test.spec, code, data)
		}
	}
	headless := service(t, s, 201, "POST", path, body("headless", `,"clusterIP":"None"`))
	external := service(t, s, 201, "POST", path, `{"apiVersion":"v1","kind":"Service","metadata":{"name":"external"},"spec":{"type":"ExternalName","externalName":"example.com"}}`)
	if headless.Spec.ClusterIP != "None" || external.Spec.ClusterIP != "" || external.Spec.ClusterIPs != nil {
		t.Errorf("%+v %+v", headless.Spec, external.Spec)
	}
	// A refused write and a dry run allocate nothing.
	if code, data := send(t, s, "POST", path, body("BAD", "")); code != 422 {
		t.Errorf("%d %s", code, data)
	}
	service(t, s, 201, "POST", path+"?dryRun=All", body("dry", ""))
	if got := strings.Fields(addresses(t, s)); len(got) != 2 {
		t.Errorf("taken: %s", got)
	}
	// A change of type releases and allocates.
	changed := service(t, s, 200, "PATCH", path+"/a", `{"spec":{"type":"ExternalName","externalName":"example.com","clusterIP":null,"clusterIPs":null}}`)
	if changed.Spec.ClusterIP != "" || addresses(t, s) != "10.96.0.10" {
		t.Errorf("%+v %s", changed.Spec, addresses(t, s))
	}
	service(t, s, 200, "PATCH", path+"/a", `{"spec":{"type":"ClusterIP","externalName":null}}`)
	if got := strings.Fields(addresses(t, s)); len(got) != 2 {
		t.Errorf("taken: %s", got)
	}
	service(t, s, 200, "DELETE", path+"/a", "")
	service(t, s, 200, "DELETE", path+"/given", "")
	if got := addresses(t, s); got != "" {
		t.Errorf("taken after all are deleted: %s", got)
	}
}

func TestFullRange(t *testing.T) {
	s := start(t, mem.New(), nodePorts, "10.96.0.0/30")
	service(t, s, 201, "POST", path, body("a", ""))
	service(t, s, 201, "POST", path, body("b", ""))
	const want = "Internal error occurred: failed to allocate a serviceIP: range is full"
	if code, data := send(t, s, "POST", path, body("c", "")); code != 500 || !strings.Contains(string(data), want) {
		t.Errorf("%d %s", code, data)
	}
}

// The Endpoints of a deleted service are not those of the next one of its name.
func TestEndpointsOfADeletedService(t *testing.T) {
	s := start(t, mem.New(), nodePorts, "10.96.0.0/24")
	const endpoints = "/api/v1/namespaces/default/endpoints"
	for _, name := range []string{"a", "b"} {
		service(t, s, 201, "POST", path, body(name, ""))
		text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Endpoints","metadata":{"name":%q},"subsets":[{"addresses":[{"ip":"192.0.2.1"}],"ports":[{"port":80}]}]}`, name)
		if code, data := send(t, s, "POST", endpoints, text); code != 201 {
			t.Fatalf("%d %s", code, data)
		}
	}
	service(t, s, 200, "DELETE", path+"/a?dryRun=All", "")
	if code, data := send(t, s, "GET", endpoints+"/a", ""); code != 200 {
		t.Errorf("after a dry run: %d %s", code, data)
	}
	service(t, s, 200, "DELETE", path+"/a", "")
	for name, want := range map[string]int{"a": 404, "b": 200} {
		if code, data := send(t, s, "GET", endpoints+"/"+name, ""); code != want {
			t.Errorf("endpoints %s: %d %s", name, code, data)
		}
	}
}

func TestDualStack(t *testing.T) {
	s := start(t, mem.New(), nodePorts, "10.96.0.0/24", "fd00:1::/112")
	both := service(t, s, 201, "POST", path, body("both", `,"ipFamilyPolicy":"PreferDualStack"`))
	if len(both.Spec.ClusterIPs) != 2 || !strings.HasPrefix(both.Spec.ClusterIPs[0], "10.96.0.") || !strings.HasPrefix(both.Spec.ClusterIPs[1], "fd00:1::") {
		t.Fatalf("%+v", both.Spec)
	}
	six := service(t, s, 201, "POST", path, body("six", `,"ipFamilies":["IPv6"]`))
	if len(six.Spec.ClusterIPs) != 1 || !strings.HasPrefix(six.Spec.ClusterIP, "fd00:1::") {
		t.Errorf("%+v", six.Spec)
	}
	one := service(t, s, 200, "PATCH", path+"/both", `{"spec":{"ipFamilyPolicy":"SingleStack"}}`)
	if len(one.Spec.ClusterIPs) != 1 || one.Spec.ClusterIP != both.Spec.ClusterIP || strings.Contains(addresses(t, s), both.Spec.ClusterIPs[1]) {
		t.Errorf("%+v %s", one.Spec, addresses(t, s))
	}
	again := service(t, s, 200, "PATCH", path+"/both", `{"spec":{"ipFamilyPolicy":"RequireDualStack"}}`)
	if len(again.Spec.ClusterIPs) != 2 {
		t.Errorf("%+v", again.Spec)
	}
}

// A cluster loses or gains a family. Services that prefer two keep what they have, and
// can be changed otherwise.
func TestFamiliesOfTheClusterChange(t *testing.T) {
	shared := mem.New()
	const one, two = "10.96.0.0/24", "fd00:1::/112"
	before := service(t, start(t, shared, nodePorts, one, two), 201, "POST", path, body("a", `,"ipFamilyPolicy":"PreferDualStack"`))
	single := start(t, shared, nodePorts, one)
	after := service(t, single, 200, "PATCH", path+"/a", `{"spec":{"selector":{"app":"web"}}}`)
	if !slices.Equal(after.Spec.ClusterIPs, before.Spec.ClusterIPs) || len(after.Spec.ClusterIPs) != 2 {
		t.Errorf("%+v", after.Spec)
	}
	created := service(t, single, 201, "POST", path, body("b", `,"ipFamilyPolicy":"PreferDualStack"`))
	again := service(t, start(t, shared, nodePorts, one, two), 200, "PATCH", path+"/b", `{"spec":{"selector":{"app":"web"}}}`)
	if !slices.Equal(again.Spec.ClusterIPs, created.Spec.ClusterIPs) || len(again.Spec.ClusterIPs) != 1 {
		t.Errorf("%+v", again.Spec)
	}
}

func TestNodePorts(t *testing.T) {
	s := start(t, mem.New(), services.PortRange{First: 30000, Last: 30003}, "10.96.0.0/24")
	node := func(name, ports string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"name":%q},"spec":{"type":"NodePort","ports":[%s]}}`, name, ports)
	}
	a := service(t, s, 201, "POST", path, node("a", `{"port":80,"nodePort":30001}`))
	if a.Spec.Ports[0].NodePort != 30001 {
		t.Errorf("%+v", a.Spec.Ports)
	}
	for _, test := range []struct{ ports, message string }{
		{`{"port":80,"nodePort":30001}`, `spec.ports[0].nodePort: Invalid value: 30001: provided port is already allocated`},
		{`{"port":80,"nodePort":20}`, `spec.ports[0].nodePort: Invalid value: 20: provided port is not in the valid range. The range of valid ports is 30000-30003`},
	} {
		if code, data := send(t, s, "POST", path, node("refused", test.ports)); code != 422 || !strings.Contains(string(data), test.message) {
			t.Errorf("%s: %d %s", test.ports, code, data)
		}
	}
	dns := service(t, s, 201, "POST", path, node("dns", `{"name":"udp","port":53,"protocol":"UDP"},{"name":"tcp","port":53,"protocol":"TCP"}`))
	if dns.Spec.Ports[0].NodePort == 0 || dns.Spec.Ports[0].NodePort != dns.Spec.Ports[1].NodePort {
		t.Errorf("one port in two protocols: %+v", dns.Spec.Ports)
	}
	service(t, s, 201, "POST", path, node("c", `{"port":80}`))
	service(t, s, 201, "POST", path, node("d", `{"port":80}`))
	if code, data := send(t, s, "POST", path, node("full", `{"port":80}`)); code != 500 || !strings.Contains(string(data), "range is full") {
		t.Errorf("%d %s", code, data)
	}
	kept := service(t, s, 200, "PUT", path+"/a", node("a", `{"port":80}`))
	if kept.Spec.Ports[0].NodePort != 30001 {
		t.Errorf("a PUT without the node port lost it: %+v", kept.Spec.Ports)
	}
	service(t, s, 200, "PATCH", path+"/a", `{"spec":{"type":"ClusterIP","ports":[{"port":80,"nodePort":null}]}}`)
	service(t, s, 200, "DELETE", path+"/dns", "")
	service(t, s, 201, "POST", path, node("e", `{"port":80,"nodePort":30001}`))
	lb := service(t, s, 201, "POST", path, `{"apiVersion":"v1","kind":"Service","metadata":{"name":"lb"},"spec":{"type":"LoadBalancer","allocateLoadBalancerNodePorts":false,"externalTrafficPolicy":"Local","ports":[{"port":80}]}}`)
	if lb.Spec.Ports[0].NodePort != 0 || lb.Spec.HealthCheckNodePort == 0 {
		t.Errorf("%+v", lb.Spec)
	}
}

// Two API servers with one store allocate every address and port once.
func TestTwoServers(t *testing.T) {
	shared := mem.New()
	servers := []*apiservertest.Server{
		start(t, shared, services.PortRange{First: 30000, Last: 30099}, "10.96.0.0/25"),
		start(t, shared, services.PortRange{First: 30000, Last: 30099}, "10.96.0.0/25"),
	}
	const count = 100
	var mu sync.Mutex
	ips, ports := map[string]string{}, map[int32]string{}
	var wait sync.WaitGroup
	for i := range count {
		wait.Go(func() {
			name := fmt.Sprintf("s%d", i)
			code, data := send(t, servers[i%2], "POST", path, fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"name":%q},"spec":{"type":"NodePort","ports":[{"port":80}]}}`, name))
			var s corev1.Service
			if err := json.Unmarshal(data, &s); err != nil || code != http.StatusCreated {
				t.Errorf("%d %s", code, data)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			port := s.Spec.Ports[0].NodePort
			if other := ips[s.Spec.ClusterIP]; other != "" {
				t.Errorf("%s is given to %s and %s", s.Spec.ClusterIP, other, name)
			}
			if other := ports[port]; other != "" {
				t.Errorf("%d is given to %s and %s", port, other, name)
			}
			ips[s.Spec.ClusterIP], ports[port] = name, name
		})
	}
	wait.Wait()
}

// A dry run of an update releases nothing that the service still has.
func TestDryRunOfAnUpdateReleasesNothing(t *testing.T) {
	s := start(t, mem.New(), nodePorts, "10.96.0.0/24")
	a := service(t, s, 201, "POST", path, body("a", `,"type":"NodePort"`))
	service(t, s, 200, "PATCH", path+"/a?dryRun=All", `{"spec":{"type":"ClusterIP"}}`)
	taken := fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"b"},"spec":{"type":"NodePort","ports":[{"port":80,"nodePort":%d}]}}`, a.Spec.Ports[0].NodePort)
	if code, data := send(t, s, "POST", path, taken); code != http.StatusUnprocessableEntity {
		t.Errorf("another service took the port of a: %d %s", code, data)
	}
}
