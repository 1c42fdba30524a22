package serviceresolver_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/objects/objectstest"
	"github.com/coracle-io/coracle/internal/apiserver/serviceresolver"
)

func TestResolveEndpoint(t *testing.T) {
	m := objectstest.NewMemory()
	at := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "ns", Name: name} }
	m.Put(objects.Services, &corev1.Service{ObjectMeta: at("hook"), Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.0.0.9", IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		Ports: []corev1.ServicePort{{Name: "https", Port: 443}},
	}})
	m.Put(objects.Services, &corev1.Service{ObjectMeta: at("idle"), Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.0.0.8", Ports: []corev1.ServicePort{{Port: 443}},
	}})
	m.Put(objects.Services, &corev1.Service{ObjectMeta: at("outside"), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "hooks.example.com"}})
	slice := at("hook-1")
	slice.Labels = map[string]string{discoveryv1.LabelServiceName: "hook"}
	m.Put(objects.EndpointSlices, &discoveryv1.EndpointSlice{
		ObjectMeta: slice, AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To[int32](8443)}},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.1.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false)}},
			{Addresses: []string{"10.1.0.2"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}},
		},
	})
	s := serviceresolver.New(m)
	for _, c := range []struct {
		name string
		port int32
		want string // "" is an error
	}{
		{"hook", 443, "https://10.1.0.2:8443"},
		{"hook", 80, ""},
		{"idle", 443, ""},
		{"none", 443, ""},
		{"outside", 9443, "https://hooks.example.com:9443"},
	} {
		u, err := s.ResolveEndpoint("ns", c.name, c.port)
		switch {
		case c.want == "" && err == nil:
			t.Errorf("%s:%d: %s, want an error", c.name, c.port, u)
		case c.want != "" && (err != nil || u.String() != c.want):
			t.Errorf("%s:%d: %v, %v, want %s", c.name, c.port, u, err, c.want)
		}
	}
}
