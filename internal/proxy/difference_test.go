package proxy

import (
	"net/netip"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestCompare checks that rules differ by what changed alone.
func TestCompare(t *testing.T) {
	name := PortName{NamespacedName: types.NamespacedName{Namespace: "kube-system", Name: "kube-dns"}, Protocol: v1.ProtocolUDP, Family: v1.IPv4Protocol}
	service := &ServicePort{ClusterIP: netip.MustParseAddr("10.96.0.10"), Port: 53}
	with := func(p *ServicePort) Rules { return Rules{Services: ServicePorts{}.With(name, p)} }
	if d := Compare(with(service), with(service)); len(d.Services)+len(d.HostPorts) > 0 || d.HasDatagrams() || d.Ranges {
		t.Errorf("equal rules differ: %v", d)
	}
	for what, d := range map[string]Difference{
		"a change": Compare(with(service), with(new(*service))), "a new Service": Compare(Rules{}, with(service)), "a deletion": Compare(with(service), Rules{}),
	} {
		if len(d.Services) != 1 || !d.HasDatagrams() || d.Ranges {
			t.Errorf("%s of a UDP port is %v", what, d)
		}
	}
	if !Compare(Rules{}, Rules{LoopbackNodePorts: true}).Ranges {
		t.Error("that node ports answer at loopback addresses is no difference")
	}
}
