package userspace

import (
	"testing"
	"time"

	"github.com/coracle-io/coracle/internal/proxy"
	"github.com/coracle-io/coracle/internal/proxy/conntrack"
	"github.com/coracle-io/coracle/internal/proxy/nftables"
	"github.com/coracle-io/coracle/internal/proxy/proxytest"
)

func TestPackets(t *testing.T) {
	newBackend := func(c proxytest.Config) proxy.Backend {
		b := New(t.Context(), nftables.Config{
			Table: "coracle-test", ClusterCIDRs: c.ClusterCIDRs, IPv6: c.IPv6, NetNS: c.NetNS,
			Conntrack: conntrack.Settings{TCPCloseWait: time.Hour},
		})
		t.Cleanup(b.close)
		return b
	}
	proxytest.Suite{New: newBackend, GuardsServiceRanges: true, WithoutSCTP: true, HidesClients: true}.Run(t)
}
