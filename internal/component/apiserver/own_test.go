package apiserver

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/objects/objectstest"
)

// TestOwnAddresses shows which addresses an API server takes for its own.
func TestOwnAddresses(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "default", Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}}
	o := newOwnAddresses(objectstest.NewMemory().
		Put(objects.Services, &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.1"}, Ports: []corev1.ServicePort{{Port: 443}}}}).
		Put(objects.EndpointSlices, &discoveryv1.EndpointSlice{ObjectMeta: meta, Ports: []discoveryv1.EndpointPort{{Port: ptr.To[int32](6443)}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.7"}}}}))
	o.listen(&net.TCPAddr{Port: 7443})
	before := interfaceAddresses(t)
	cases := map[string]bool{
		"127.0.0.1:7443": true, "127.8.9.1:7443": true, "[::1]:7443": true, "127.0.0.1:10250": false,
		"192.0.2.7:6443": true, "192.0.2.7:7443": false, "192.0.2.8:6443": false, "10.96.0.1:443": true, "10.96.0.1:80": false, "203.0.113.1:7443": false,
	}
	for text, want := range cases {
		if got := o.has(netip.MustParseAddrPort(text)); got != want {
			t.Errorf("%s is an API server's own: %v, want %v", text, got, want)
		}
	}
	var others []netip.Addr
	for _, a := range before {
		if !o.has(netip.AddrPortFrom(a, 7443)) {
			others = append(others, a)
		}
	}
	after := interfaceAddresses(t) // others on this machine add and remove interfaces
	for _, a := range others {
		if slices.Contains(after, a) {
			t.Errorf("%s is not an API server's own", a)
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	conn, err := o.dialOthers(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatalf("another server: %v", err)
	}
	_ = conn.Close()
	o.listen(listener.Addr())
	if _, err := o.dialOthers(t.Context(), "tcp", listener.Addr().String()); err == nil {
		t.Error("an API server connects to itself")
	}
}

// interfaceAddresses returns the addresses of this machine's interfaces that are
// not link-local.
func interfaceAddresses(t *testing.T) (all []netip.Addr) {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range addresses {
		if n, ok := address.(*net.IPNet); ok && !n.IP.IsLinkLocalUnicast() {
			all = append(all, netip.MustParseAddr(n.IP.String()))
		}
	}
	return all
}
