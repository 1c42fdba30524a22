package dns

import (
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// The server has the same answers from what it keeps of objects as from whole ones, but
// for its own endpoints, which it compares with what it has announced.
func TestReducedObjects(t *testing.T) {
	const unused = 1000 // bytes, in fields that nobody reads
	large := strings.Repeat("x", unused)
	meta := metav1.ObjectMeta{Namespace: "default", Name: "web", Labels: map[string]string{"a": large, discoveryv1.LabelServiceName: "web"}, Annotations: map[string]string{"a": large}}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(v1.ProtocolTCP), Port: new(int32(80)), AppProtocol: &large}},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.0.0.1"}, Hostname: new("a"), TargetRef: &v1.ObjectReference{Name: large}, Zone: &large, NodeName: &large},
			{Addresses: []string{"10.0.0.2"}, Conditions: discoveryv1.EndpointConditions{Ready: new(false)}},
		},
	}
	keep := func(obj interface{ Size() int }) any {
		t.Helper()
		kept, err := reduce(obj)
		if err != nil {
			t.Fatal(err)
		}
		if n := kept.(interface{ Size() int }).Size(); n >= unused {
			t.Errorf("the node keeps %d bytes: %v", n, kept)
		}
		return kept
	}
	kept := keep(slice).(*discoveryv1.EndpointSlice)
	if got, want := readyEndpoints(kept), readyEndpoints(slice); len(want) != 1 || !reflect.DeepEqual(got, want) {
		t.Errorf("endpoints %v, want %v", got, want)
	}
	if kept.Labels[discoveryv1.LabelServiceName] != "web" {
		t.Errorf("kept %v", kept.ObjectMeta)
	}
	view := &informerView{slices: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{byService: func(any) ([]string, error) { return nil, nil }})}
	for _, spec := range []v1.ServiceSpec{
		{Type: v1.ServiceTypeExternalName, ExternalName: "www.example.com"},
		{ClusterIPs: []string{"10.96.0.20", "2001:db8::20"}, Ports: []v1.ServicePort{{Name: "HTTP", Protocol: v1.ProtocolTCP, Port: 80, AppProtocol: &large}}, Selector: map[string]string{"a": large}},
		{ClusterIPs: []string{v1.ClusterIPNone}},
	} {
		whole := &v1.Service{ObjectMeta: meta, Spec: spec}
		if got, want := view.convert(keep(whole).(*v1.Service)), view.convert(whole); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if n := keep(&v1.Namespace{ObjectMeta: meta}).(*v1.Namespace); n.Name != "web" {
		t.Errorf("namespace %q", n.Name)
	}
	s := &Server{config: Config{Addresses: []string{"192.0.2.10"}, NodeName: "n1", Port: 53}}
	for _, own := range s.endpointSlices() {
		if kept, err := reduce(own); err != nil || !sameEndpoints(kept.(*discoveryv1.EndpointSlice), own) {
			t.Errorf("its own endpoints are %v, %v", kept, err)
		}
	}
}
