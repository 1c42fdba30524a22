package discovery

import (
	"fmt"
	"slices"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

// TestAddresses checks addresses of endpoints by the type of the slice.
func TestAddresses(t *testing.T) {
	const ipv4, ipv6, names = discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN
	for _, test := range []struct {
		of      discoveryv1.AddressType
		address string
		want    []string
	}{
		{ipv4, "10.0.0.1", nil},
		{ipv6, "2001:db8::1", nil},
		{names, "a.example.com", nil},
		{ipv4, "010.0.0.1", []string{`endpoints[0].addresses[0]: Invalid value: "010.0.0.1": must not have leading 0s`}},
		{ipv4, "::ffff:1.2.3.4", []string{`endpoints[0].addresses[0]: Invalid value: "::ffff:1.2.3.4": must not be an IPv4-mapped IPv6 address`}},
		{ipv6, "::ffff:1.2.3.4", []string{`endpoints[0].addresses[0]: Invalid value: "::ffff:1.2.3.4": must not be an IPv4-mapped IPv6 address`}},
		{ipv6, "2001:DB8::1", []string{`endpoints[0].addresses[0]: Invalid value: "2001:DB8::1": must be in canonical form ("2001:db8::1")`}},
		{ipv4, "2001:db8::1", []string{`endpoints[0].addresses: Invalid value: "2001:db8::1": must be an IPv4 address`}},
		{ipv6, "10.0.0.1", []string{`endpoints[0].addresses: Invalid value: "10.0.0.1": must be an IPv6 address`}},
		{ipv4, "127.0.0.1", []string{`endpoints[0].addresses[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)`}},
		{ipv4, "::1", []string{
			`endpoints[0].addresses: Invalid value: "::1": must be an IPv4 address`,
			`endpoints[0].addresses[0]: Invalid value: "::1": may not be in the loopback range (127.0.0.0/8, ::1/128)`,
		}},
		{names, "a", []string{`endpoints[0].addresses[0]: Invalid value: "a": should be a domain with at least two segments separated by dots`}},
	} {
		s := &discoveryv1.EndpointSlice{AddressType: test.of, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{test.address}}}}
		var got []string
		for _, err := range validateEndpointSlice(s, nil, true) {
			got = append(got, err.Error())
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s of %s: %q, want %q", test.address, test.of, got, test.want)
		}
	}
}

// TestUncheckedEndpoints checks that endpoints of older versions stay as long as none of
// them changes, and the order of the errors.
func TestUncheckedEndpoints(t *testing.T) {
	slice := func(addresses ...string) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Name: "s", Namespace: "default", UID: "u", ResourceVersion: "1", CreationTimestamp: metav1.Now()},
			AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{}},
		}
		for _, address := range addresses {
			e := discoveryv1.Endpoint{Addresses: []string{address}, Hints: &discoveryv1.EndpointHints{}}
			for i := range maxHints + 1 {
				e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: fmt.Sprint("z", i)})
			}
			s.Endpoints = append(s.Endpoints, e)
		}
		defaultEndpointSlice(s)
		return s
	}
	r := EndpointSlices()
	request := &resource.RequestContext{Namespace: "default"}
	old, labeled := slice("010.0.0.1"), slice("010.0.0.1")
	labeled.Labels = map[string]string{"a": "b"}
	if errs := resourcetest.BeforeUpdate(r, request, labeled, old); len(errs) > 0 {
		t.Error(errs)
	}
	more := slice("010.0.0.1", "10.0.0.2")
	more.Ports[0].AppProtocol = new("a/b/c")
	var fields []string
	for _, err := range resourcetest.BeforeUpdate(r, request, more, old) {
		fields = append(fields, err.Field)
	}
	want := []string{"ports[0].appProtocol", "endpoints[0].addresses[0]", "endpoints[0].hints.forZones", "endpoints[1].hints.forZones"}
	if !slices.Equal(fields, want) {
		t.Errorf("errors of %q, want %q", fields, want)
	}
}
