// Package nftables applies a proxy's Rules to the kernel by netlink, in the
// design of KEP-3866: maps lead from address, protocol and port to a chain, so
// that a packet costs the same with one Service as with ten thousand. Each
// difference between Rules is one transaction.
package nftables

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/coracle-io/coracle/internal/nft"
	"github.com/coracle-io/coracle/internal/proxy"
)

// Config configures a Backend.
type Config struct {
	// Table is the name of the tables, one for each family. Each cluster on a
	// machine needs its own.
	Table string
	// ClusterCIDRs are the ranges of pods, at most one of each family.
	// Connections to a cluster IP from other addresses are masqueraded.
	ClusterCIDRs []netip.Prefix
	// IPv6 adds a table for IPv6.
	IPv6 bool
	// NetNS is the file descriptor of the network namespace to work in; 0 means
	// the namespace of this process.
	NetNS int
}

// Backend is a proxy.Backend. One goroutine uses it.
type Backend struct {
	*nft.Tables[ruleset]
	clusterCIDRs []netip.Prefix
	rules        proxy.Rules
	stale        bool // UDP flows may contradict rules
	forget       func(proxy.Rules) error
	keep         func() // keeps half-closed connections; nil once it was called
}

// New returns a backend. It changes nothing.
func New(c Config) *Backend {
	b := &Backend{Tables: &nft.Tables[ruleset]{Name: c.Table, IPv6: c.IPv6, NetNS: c.NetNS}, clusterCIDRs: c.ClusterCIDRs}
	b.forget = b.forgetStaleFlows
	if c.NetNS == 0 {
		b.keep = keepHalfClosed
	}
	return b
}

func (b *Backend) clusterCIDR(f nft.Family) netip.Prefix {
	for _, p := range b.clusterCIDRs {
		if p.Addr().BitLen() == int(f.Size)*8 {
			return p
		}
	}
	return netip.Prefix{}
}

// Apply implements proxy.Backend.
func (b *Backend) Apply(rules proxy.Rules) error {
	known := b.Known()
	if err := b.Replace(func(f nft.Family) ruleset { return plan(rules, f, b.clusterCIDR(f)) }, update); err != nil {
		return err
	}
	if b.keep != nil { // with the first rules the kernel begins to track connections
		b.keep()
		b.keep = nil
	}
	b.stale = b.stale || !known || datagramsChanged(b.rules, rules)
	b.rules = rules
	if !b.stale {
		return nil
	}
	if err := b.forget(rules); err != nil {
		return err
	}
	b.stale = false
	return nil
}

// batch collects the messages of a transaction for one family's table.
type batch struct{ *nft.Batch }

// update adds the messages for the difference. Sets and chains are added before
// what refers to them, and removed after it.
func update(messages *nft.Batch, before, next ruleset) {
	b := batch{messages}
	for name := range next.elements {
		if _, ok := before.elements[name]; !ok {
			b.AddSet(b.fixedSet(name), nil)
		}
	}
	for name, timeout := range next.affinity {
		if _, ok := before.affinity[name]; !ok { // the rule carries a timeout that changes
			b.AddSet(b.affinitySet(name, timeout), nil)
		}
	}
	b.UpdateChains(before.chains, next.chains, b.chain)
	for name, elements := range next.elements {
		b.updateElements(name, before.elements[name], elements)
	}
	b.RemoveChains(before.chains, next.chains)
	for name, timeout := range before.affinity {
		if _, ok := next.affinity[name]; !ok {
			b.Conn.DelSet(b.affinitySet(name, timeout))
		}
	}
}

func (b batch) updateElements(name string, before, next map[key]target) {
	set := b.fixedSet(name)
	var removed, added []nftables.SetElement
	for k, t := range before {
		if now, ok := next[k]; !ok || now != t {
			removed = append(removed, element(name, k, t))
		}
	}
	for k, t := range next {
		if old, ok := before[k]; !ok || old != t {
			added = append(added, element(name, k, t))
		}
	}
	b.UpdateElements(set, removed, added)
}

// fixedSet returns one of the fixed maps and sets.
func (b batch) fixedSet(name string) *nftables.Set {
	set := &nftables.Set{Table: b.Table, Name: name, IsMap: isMap(name), DataType: nftables.TypeVerdict}
	addr, protocol, port := b.Family.Addr, nftables.TypeInetProto, nftables.TypeInetService
	switch name {
	case serviceNodePorts, noEndpointPorts, hostPorts:
		set.KeyType = nftables.MustConcatSetType(protocol, port)
	case clusterAddresses:
		set.KeyType = addr
	case hairpin:
		set.KeyType = nftables.MustConcatSetType(addr, addr, protocol, port)
	default:
		set.KeyType = nftables.MustConcatSetType(addr, protocol, port)
	}
	return set
}

// isMap reports whether a fixed map or set is a map.
func isMap(name string) bool {
	return name != hairpin && name != clusterIPs && name != clusterAddresses
}

func (b batch) affinitySet(name string, timeout time.Duration) *nftables.Set {
	return &nftables.Set{Table: b.Table, Name: name, KeyType: b.Family.Addr, Dynamic: true, HasTimeout: true, Timeout: timeout, Size: 65535}
}

// element returns an element of a fixed map or set.
func element(name string, k key, t target) nftables.SetElement {
	var data []byte
	for _, a := range []netip.Addr{k.source, k.address} {
		if a.IsValid() {
			data = append(data, a.AsSlice()...)
		}
	}
	if k.protocol != "" {
		data = append(data, nft.ProtocolNumber(k.protocol), 0, 0, 0)
		data = append(binary.BigEndian.AppendUint16(data, k.port), 0, 0)
	}
	element := nftables.SetElement{Key: data}
	if isMap(name) {
		element.VerdictData = nft.Verdict(expr.VerdictGoto, string(t))
	}
	return element
}

// chain returns a chain. One named for a hook is attached to it.
func (b batch) chain(name string) *nftables.Chain {
	c := &nftables.Chain{Name: name, Table: b.Table}
	attach := func(kind nftables.ChainType, hook *nftables.ChainHook, priority *nftables.ChainPriority) *nftables.Chain {
		c.Type, c.Hooknum, c.Priority = kind, hook, priority
		return c
	}
	switch name {
	case "nat-prerouting":
		return attach(nftables.ChainTypeNAT, nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest)
	case "nat-output":
		return attach(nftables.ChainTypeNAT, nftables.ChainHookOutput, nftables.ChainPriorityNATDest)
	case "nat-postrouting":
		return attach(nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource)
	case "filter-input":
		return attach(nftables.ChainTypeFilter, nftables.ChainHookInput, nftables.ChainPriorityFilter)
	case "filter-forward":
		return attach(nftables.ChainTypeFilter, nftables.ChainHookForward, nftables.ChainPriorityFilter)
	case "filter-output":
		return attach(nftables.ChainTypeFilter, nftables.ChainHookOutput, nftables.ChainPriorityFilter)
	}
	return c
}
