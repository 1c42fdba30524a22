// Package nftables applies the Rules of network policies to the kernel by
// netlink. Each difference between Rules is one transaction.
//
// The forward hook sees what pods exchange with each other and with the world,
// also between pods of one bridge if the kernel's br_netfilter is on, as Services
// need it to be. It does not see what a pod exchanges with its own node, which
// passes, except what an isolated pod sends to the ports of Ingresses: the input hook
// judges that. It sees addresses after the translation of Services, and before
// masquerading. What IPVS translates passes the output hook instead.
package nftables

import (
	"errors"
	"maps"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/networkpolicy"
	"github.com/coracle-io/coracle/internal/nft"
)

// Config configures a Backend.
type Config struct {
	// Table is the name of the tables, one for each family. Each cluster on a
	// machine needs its own.
	Table string
	// IPv6 adds a table for IPv6. A kernel that has IPv6 gives pods addresses of
	// it.
	IPv6 bool
	// Bridge is the bridge of the pods; "" is none.
	Bridge string
	// IngressPorts are the ports of TCP at which the node serves Ingresses.
	IngressPorts []uint16
	// IPVS says that the kernel's IPVS sends connections to Services on.
	IPVS bool
	// NetNS is the file descriptor of the network namespace to work in; 0 means
	// the namespace of this process.
	NetNS int
}

// Backend is a networkpolicy.Backend. One goroutine uses it.
type Backend struct {
	*nft.Tables[ruleset]
	config Config
	// owners are the pods that had the addresses of this node last.
	owners map[netip.Addr]types.UID
	reused map[netip.Addr]bool // addresses that may have flows of a former pod
}

// New returns a backend. It changes nothing.
func New(c Config) *Backend {
	return &Backend{
		Tables: &nft.Tables[ruleset]{Name: c.Table, IPv6: c.IPv6, NetNS: c.NetNS}, config: c,
		owners: map[netip.Addr]types.UID{}, reused: map[netip.Addr]bool{},
	}
}

// Apply implements networkpolicy.Backend.
func (b *Backend) Apply(rules networkpolicy.Rules) error {
	if err := b.Replace(func(f nft.Family) ruleset { return plan(rules, f, b.config) }, update); err != nil {
		return err
	}
	for address, owner := range rules.Owners {
		if before, ok := b.owners[address]; ok && before != owner {
			b.reused[address] = true
		}
		b.owners[address] = owner
	}
	return b.forgetReused()
}

// Isolated implements networkpolicy.Backend.
func (b *Backend) Isolated() ([]netip.Addr, error) {
	found := map[netip.Addr]bool{}
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		for _, name := range []string{egressPods, ingressPods} {
			elements, err := b.Elements(f, name)
			if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EAFNOSUPPORT) {
				return nil, err
			}
			for key := range elements {
				if a, ok := netip.AddrFromSlice([]byte(key)); ok {
					found[a] = true
				}
			}
		}
	}
	return slices.SortedFunc(maps.Keys(found), netip.Addr.Compare), nil
}

// update adds the messages for the difference. Sets and chains are added before
// what refers to them, and removed after it.
func update(b *nft.Batch, before, next ruleset) {
	for name, s := range next.sets {
		if _, ok := before.sets[name]; !ok {
			b.AddSet(s.describe(b.Family, b.Table, name), nil)
		}
	}
	b.UpdateChains(before.chains, next.chains, func(name string) *nftables.Chain { return chain(b.Table, name) })
	for name, s := range next.sets {
		old := before.sets[name]
		b.UpdateElements(s.describe(b.Family, b.Table, name), old.elements(b.Family, s), s.elements(b.Family, old))
	}
	b.RemoveChains(before.chains, next.chains)
	for name, s := range before.sets {
		if _, ok := next.sets[name]; !ok {
			b.Conn.DelSet(s.describe(b.Family, b.Table, name))
		}
	}
}

// chain returns a chain. The base chains are attached to hooks.
func chain(table *nftables.Table, name string) *nftables.Chain {
	c := &nftables.Chain{Name: name, Table: table}
	afterEgress := nftables.ChainPriorityRef(*nftables.ChainPriorityFilter + 1)
	switch name {
	case egressChain:
		c.Priority, c.Hooknum = nftables.ChainPriorityFilter, nftables.ChainHookForward
	case egressChain + atOutput:
		c.Priority, c.Hooknum = nftables.ChainPriorityFilter, nftables.ChainHookOutput
	case ingressChain:
		c.Priority, c.Hooknum = afterEgress, nftables.ChainHookForward
	case ingressChain + atOutput:
		c.Priority, c.Hooknum = afterEgress, nftables.ChainHookOutput
	case nodeChain: // behind IPVS, which takes what is for a Service: that is judged where it leaves
		c.Priority, c.Hooknum = nftables.ChainPriorityRef(*nftables.ChainPriorityNATSource+1), nftables.ChainHookInput
	default:
		return c
	}
	c.Type = nftables.ChainTypeFilter
	return c
}
