package ipvs

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/netnstest"
	"github.com/coracle-io/coracle/internal/proxy"
	"github.com/coracle-io/coracle/internal/proxy/conntrack"
	"github.com/coracle-io/coracle/internal/proxy/nftables"
	"github.com/coracle-io/coracle/internal/proxy/proxytest"
)

// newBackend returns a backend for a lab.
func newBackend(c proxytest.Config) proxy.Backend {
	return New(Config{NFTables: nftables.Config{
		Table: "coracle-test", ClusterCIDRs: c.ClusterCIDRs, IPv6: c.IPv6, NetNS: c.NetNS,
		Conntrack: conntrack.Settings{TCPCloseWait: time.Hour},
	}})
}

// TestPackets needs a kernel with IPVS, such as that of test/vm.
func TestPackets(t *testing.T) {
	k, err := connect(int(netnstest.New(t)))
	if errors.Is(err, unix.ENOENT) {
		t.Skipf("the kernel has no IPVS: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	k.close()
	proxytest.Suite{New: newBackend, GuardsServiceRanges: true}.Run(t)
}
