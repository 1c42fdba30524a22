package proxy

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The Services of a namespace are bounded, the oldest first. Without that, one of
// them could make the transaction with all Services too large for the kernel.
func TestServicesOfANamespaceAreBounded(t *testing.T) {
	p, _, events := permitLab()
	add := func(namespace, name string, created int64, ports, endpoints int, affinity v1.ServiceAffinity) {
		s := service(func(s *v1.ServiceSpec) { s.Ports, s.SessionAffinity = nil, affinity })
		s.Namespace, s.Name, s.UID, s.CreationTimestamp = namespace, name, types.UID(namespace+name), metav1.Unix(created, 0)
		e := slice("http")
		e.Namespace, e.Name, e.Labels, e.Ports = namespace, name, map[string]string{discoveryv1.LabelServiceName: name}, nil
		for i := range ports {
			port := fmt.Sprint("p", i)
			s.Spec.Ports = append(s.Spec.Ports, v1.ServicePort{Name: port, Port: int32(i + 1)})
			e.Ports = append(e.Ports, discoveryv1.EndpointPort{Name: &port, Protocol: new(v1.ProtocolTCP), Port: new(int32(i + 1))})
		}
		for i := range endpoints {
			e.Endpoints = append(e.Endpoints, endpoint(fmt.Sprintf("10.0.%d.%d rs", i/250, i%250)))
		}
		p.state.setService(s)
		p.state.setSlice(e)
	}
	add("x", "old", 1, 2, 3, "")
	add("x", "large", 2, 20_000, 100, "")
	add("x", "sticky", 3, 20_000, 3, v1.ServiceAffinityClientIP)
	add("x", "half", 4, 10_000, 25, "")
	add("x", "other-half", 5, 10_000, 25, "")
	add("x", "young", 6, 1, 1, "")
	add("y", "web", 7, 10_000, 25, "")
	served := func() string {
		count := map[string]int{}
		for name := range p.rules(t.Context()).Services.All() {
			count[name.Name]++
		}
		return fmt.Sprint(count)
	}
	if got, want := served(), "map[half:10000 old:2 web:10000 young:1]"; got != want {
		t.Errorf("ports that are served: %s, want %s", got, want)
	}
	if list := told(events); len(list) != 3 || !strings.HasPrefix(list[0], "Warning ServiceTooLarge Not served on node n1: ") {
		t.Errorf("events: %q", list)
	}
	p.state.deleteService(p.state.services[types.NamespacedName{Namespace: "x", Name: "half"}])
	if got, want := served(), "map[old:2 other-half:10000 web:10000 young:1]"; got != want {
		t.Errorf("after one is gone: %s, want %s", got, want)
	}
	if list := told(events); len(list) != 0 {
		t.Errorf("events again: %q", list)
	}
}

// A backend can have a smaller bound.
func TestBoundOfTheBackend(t *testing.T) {
	p := New(Config{NodeName: "n1", MostOfNamespace: 3})
	for i := range 5 {
		s := service(func(*v1.ServiceSpec) {})
		s.Name, s.UID, s.CreationTimestamp = fmt.Sprint("s", i), types.UID(fmt.Sprint(i)), metav1.Unix(int64(i), 0)
		p.state.setService(s)
	}
	served := map[string]bool{}
	for name := range p.permit.rules(t.Context()).Services.All() {
		served[name.Name] = true
	}
	if len(served) != 3 || served["s3"] || served["s4"] {
		t.Errorf("served %v, want the three oldest", served)
	}
}
