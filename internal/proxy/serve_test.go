package proxy

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/freeport"
)

// TestHealthCheckServersEndWithTheirServices checks that the server of a
// deleted Service ends.
func TestHealthCheckServersEndWithTheirServices(t *testing.T) {
	port := freeport.For(t)
	s := &servers{ctx: t.Context(), health: newHealth(), local: map[uint16]*localServer{}}
	name := PortName{NamespacedName: types.NamespacedName{Namespace: "default", Name: "web"}}
	with := Rules{Services: ServicePorts{}.With(name, &ServicePort{HealthCheckNodePort: uint16(port)})}
	ask := func() error {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Close = true
		answer, err := http.DefaultClient.Do(request)
		if err == nil {
			_ = answer.Body.Close()
		}
		return err
	}
	for range 3 {
		s.localHealth(with)
		if err := ask(); err != nil {
			t.Error(err)
		}
		s.localHealth(Rules{})
		if ask() == nil {
			t.Error("it answers after its Service has gone")
		}
	}
	if len(s.all) > 0 || len(s.local) > 0 {
		t.Errorf("%d servers are kept", len(s.all)+len(s.local))
	}
	s.localHealth(with)
	s.stop()
	if ask() == nil {
		t.Error("it answers after the proxy has stopped")
	}
}

// answerOf returns the code and the body of an answer.
func answerOf(handle http.HandlerFunc) (int, string) {
	w := httptest.NewRecorder()
	handle(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	return w.Code, strings.TrimSpace(w.Body.String())
}

// TestHealthCheckNodePort checks the responses to load balancers: the number of
// endpoints, whatever their ports and families, and 503 if the proxy does not
// follow the API any more.
func TestHealthCheckNodePort(t *testing.T) {
	port := freeport.For(t)
	s := &servers{ctx: t.Context(), health: newHealth(), local: map[uint16]*localServer{}}
	defer s.stop()
	web := types.NamespacedName{Namespace: "default", Name: "web"}
	rules := func(http, metrics, six []netip.AddrPort) Rules {
		r := Rules{}
		for name, ready := range map[PortName][]netip.AddrPort{
			{NamespacedName: web, Port: "http", Protocol: v1.ProtocolTCP, Family: v1.IPv4Protocol}:    http,
			{NamespacedName: web, Port: "metrics", Protocol: v1.ProtocolTCP, Family: v1.IPv4Protocol}: metrics,
			{NamespacedName: web, Port: "http", Protocol: v1.ProtocolTCP, Family: v1.IPv6Protocol}:    six,
		} {
			r.Services = r.Services.With(name, &ServicePort{HealthCheckNodePort: uint16(port), ReadyLocal: ready})
		}
		return r
	}
	at := func(texts ...string) (list []netip.AddrPort) {
		for _, text := range texts {
			list = append(list, netip.MustParseAddrPort(text))
		}
		return list
	}
	s.health.applied()
	for _, c := range []struct {
		rules Rules
		code  int
		body  string
	}{
		{rules(at("10.0.0.1:80", "10.0.0.2:80"), at("10.0.0.1:90"), at("[2001:db8::1]:80")), 200, `"localEndpoints":2`},
		{rules(nil, at("10.0.0.1:90"), nil), 200, `"localEndpoints":1`},
		{rules(nil, nil, at("[2001:db8::1]:80")), 200, `"localEndpoints":1`},
		{rules(nil, nil, nil), 503, `"localEndpoints":0`},
	} {
		s.localHealth(c.rules)
		if code, body := answerOf(s.local[uint16(port)].ServeHTTP); code != c.code || !strings.Contains(body, c.body) || !strings.Contains(body, `"serviceProxyHealthy":true`) {
			t.Errorf("%d %s, want %d and %s", code, body, c.code, c.body)
		}
	}
	s.localHealth(rules(at("10.0.0.1:80"), nil, nil))
	s.health.pending = s.health.lastUpdated.Add(-2 * healthTimeout)
	if code, body := answerOf(s.local[uint16(port)].ServeHTTP); code != 503 || !strings.Contains(body, `"serviceProxyHealthy":false`) {
		t.Errorf("a proxy that cannot apply its rules answers %d %s", code, body)
	}
}

// TestNodeToBeDeletedIsNotEligible checks that load balancers leave a node that
// is about to be deleted, whose proxy is alive nevertheless.
func TestNodeToBeDeletedIsNotEligible(t *testing.T) {
	p := New(Config{NodeName: "n1"})
	p.health.applied()
	for name, c := range map[string]struct {
		node     *v1.Node
		code     int
		eligible string
	}{
		"ordinary":   {&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, 200, `"nodeEligible": true`},
		"deleted":    {&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", DeletionTimestamp: &metav1.Time{}}}, 503, `"nodeEligible": false`},
		"autoscaled": {&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: v1.NodeSpec{Taints: []v1.Taint{{Key: "ToBeDeletedByClusterAutoscaler"}}}}, 503, `"nodeEligible": false`},
	} {
		p.setNode(c.node)
		p.setNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}})
		if code, body := answerOf(p.health.healthz); code != c.code || !strings.Contains(body, c.eligible) {
			t.Errorf("%s: /healthz answers %d %s", name, code, body)
		}
		if code, body := answerOf(p.health.livez); code != 200 || !strings.Contains(body, c.eligible) {
			t.Errorf("%s: /livez answers %d %s", name, code, body)
		}
	}
}

// TestHealthDependsOnTheSyncPeriod checks that a proxy is healthy while a change waits
// for no longer than two periods.
func TestHealthDependsOnTheSyncPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{NodeName: "n1", SyncPeriod: time.Hour})
		p.health.applied()
		p.health.queued()
		time.Sleep(2*time.Hour - time.Second)
		if !p.health.healthy() {
			t.Error("unhealthy before two periods are over")
		}
		time.Sleep(2 * time.Second)
		if p.health.healthy() {
			t.Error("healthy after two periods")
		}
	})
}
