package iptables

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/coracle-io/coracle/internal/netnstest"
	"github.com/coracle-io/coracle/internal/proxy"
	"github.com/coracle-io/coracle/internal/proxy/conntrack"
	"github.com/coracle-io/coracle/internal/proxy/proxytest"
)

// variant makes a backend use the programs of one variant: nft, legacy, or those that
// the machine has chosen (""). It skips tests on machines that do not have them.
func variant(t testing.TB, name string) func(*Backend) *Backend {
	t.Helper()
	of := func(program string) string {
		if name == "" {
			return program
		}
		return strings.Replace(program, "tables", "tables-"+name, 1)
	}
	if _, err := exec.LookPath(of("iptables-restore")); err != nil {
		t.Skipf("needs the package iptables: %v", err)
	}
	return func(b *Backend) *Backend {
		run := b.run
		b.run = func(program string, args []string, input []byte) (string, error) {
			return run(of(program), args, input)
		}
		return b
	}
}

// newBackend returns a function that makes backends for labs.
func newBackend(use func(*Backend) *Backend) func(proxytest.Config) proxy.Backend {
	return func(c proxytest.Config) proxy.Backend {
		return use(New(Config{
			Owner: "coracle-test", ClusterCIDRs: c.ClusterCIDRs, IPv6: c.IPv6, NetNS: c.NetNS,
			Conntrack: conntrack.Settings{TCPCloseWait: time.Hour},
		}))
	}
}

func TestPackets(t *testing.T) {
	for _, name := range []string{"nft", "legacy"} {
		t.Run(name, func(t *testing.T) {
			use := variant(t, name)
			scratch := use(New(Config{NetNS: int(netnstest.New(t))}))
			if _, err := scratch.run("iptables", []string{"-t", "nat", "-S"}, nil); err != nil {
				t.Skipf("the kernel has no %s tables: %v", name, err)
			}
			_, noSCTP := scratch.run("iptables", []string{"-t", "nat", "-A", "OUTPUT", "-p", "sctp", "-m", "sctp", "--dport", "1"}, nil)
			proxytest.Suite{New: newBackend(use), LoopbackNodePorts: true, WithoutSCTP: noSCTP != nil}.Run(t)
		})
	}
}

func BenchmarkApplyOneChangeAmongManyServices(b *testing.B) {
	proxytest.BenchmarkChange(b, newBackend(variant(b, "")))
}
