package proxytest

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/coracle-io/coracle/internal/netnstest"
	"github.com/coracle-io/coracle/internal/proxy"
)

// BenchmarkChange measures how long a change of one Service takes to be in the kernel,
// among a thousand.
func BenchmarkChange(b *testing.B, newBackend func(Config) proxy.Backend) {
	backend := newBackend(Config{NetNS: int(netnstest.New(b))})
	var ports []*proxy.ServicePort
	for i := range 1000 {
		ports = append(ports, &proxy.ServicePort{
			ClusterIP: netip.AddrFrom4([4]byte{10, 96, byte(i / 250), byte(1 + i%250)}), Port: 80,
			Cluster: Endpoints("10.9.1.3:8080", "10.9.1.4:8080"),
		})
	}
	if err := backend.Apply(RulesOf(ports...)); err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		changed := *ports[0]
		changed.Cluster = Endpoints(fmt.Sprintf("10.9.1.%d:8080", 1+i%200))
		ports[0] = &changed
		if err := backend.Apply(RulesOf(ports...)); err != nil {
			b.Fatal(err)
		}
	}
}
