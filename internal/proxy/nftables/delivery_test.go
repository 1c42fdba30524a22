package nftables

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/proxy"
	"github.com/coracle-io/coracle/internal/proxy/proxytest"
)

// TestAnswering checks what answers in the connection table: the endpoints, or a port of
// the node.
func TestAnswering(t *testing.T) {
	tcp, udp := proxy.PortName{Protocol: v1.ProtocolTCP}, proxy.PortName{Protocol: v1.ProtocolUDP}
	p := &proxy.ServicePort{ClusterIP: netip.MustParseAddr("10.96.0.20"), Cluster: proxytest.Endpoints("10.9.1.3:53"), Local: proxytest.Endpoints("10.9.1.3:53")}
	rules := proxy.Rules{Services: proxy.ServicePorts{}.With(tcp, p).With(udp, p)}
	if got := (Delivery{IPVS: true}).answering(rules).Services; got.Get(udp) != p || got.Get(tcp) != p {
		t.Errorf("with IPVS there answer %v", maps.Collect(got.All()))
	}
	d := Delivery{Port: func(_ proxy.PortName, local bool) uint16 {
		if local {
			return 0
		}
		return 40000
	}}
	services := d.answering(rules).Services
	got := services.Get(udp)
	if services.Len() != 1 || !slices.Equal(got.Cluster, []netip.AddrPort{netip.AddrPortFrom(netip.Addr{}, 40000)}) || len(got.Local) > 0 || got.ClusterIP != p.ClusterIP {
		t.Errorf("with a port of the node there answers %+v", got)
	}
	if len(p.Local) != 1 || rules.Services.Len() != 2 {
		t.Error("the rules themselves have changed")
	}
}
