package proxytest

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/coracle-io/coracle/internal/netnstest"
	"github.com/coracle-io/coracle/internal/proxy"
)

// BenchmarkChange measures how long a change of one Service takes to be in the kernel,
// among a hundred up to ten thousand.
func BenchmarkChange(b *testing.B, newBackend func(Config) proxy.Backend) {
	for _, services := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprint(services, "Services"), func(b *testing.B) {
			backend := newBackend(Config{NetNS: int(netnstest.New(b))})
			one := &proxy.ServicePort{ClusterIP: netip.MustParseAddr("10.96.0.20"), Port: 80, Cluster: Endpoints("10.9.1.3:8080", "10.9.1.4:8080")}
			ports := []*proxy.ServicePort{one}
			for i := range services - 1 {
				other := *one
				other.ClusterIP = netip.AddrFrom4([4]byte{10, 97, byte(i >> 8), byte(i)})
				ports = append(ports, &other)
			}
			rules := RulesOf(ports...)
			if err := backend.Apply(rules); err != nil {
				b.Fatal(err)
			}
			for i := 0; b.Loop(); i++ {
				changed := *one
				changed.Cluster = Endpoints(fmt.Sprintf("10.9.1.%d:8080", 1+i%200))
				for name := range RulesOf(one).Services.All() {
					rules.Services = rules.Services.With(name, &changed)
				}
				if err := backend.Apply(rules); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
