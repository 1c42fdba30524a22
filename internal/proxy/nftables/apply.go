// Package nftables applies a proxy's Rules to the kernel by netlink, in the
// shape of KEP-3866: maps from address, protocol and port to a chain, so that
// a packet costs the same with one Service as with ten thousand, and one
// transaction for each difference.
package nftables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/proxy"
)

// Config of the backend.
type Config struct {
	// Table is the name of the tables (one a family); each cluster on a
	// machine needs its own.
	Table string
	// ClusterCIDRs are the pods' ranges, at most one of each family: what
	// comes to a cluster IP from elsewhere is masqueraded.
	ClusterCIDRs []netip.Prefix
	// IPv6 makes the table for IPv6 too.
	IPv6 bool
	// NetNS is the file descriptor of the network namespace to work in; 0 is
	// this process's.
	NetNS int
}

// Backend is a proxy.Backend. It is used by one goroutine.
type Backend struct {
	config  Config
	applied []ruleset // by family; nil before the first Apply
	rules   proxy.Rules
}

// New returns a backend; it touches nothing.
func New(config Config) *Backend { return &Backend{config: config} }

func (b *Backend) families() []family {
	if b.config.IPv6 {
		return []family{ipv4, ipv6}
	}
	return []family{ipv4}
}

func (b *Backend) clusterCIDR(f family) netip.Prefix {
	for _, p := range b.config.ClusterCIDRs {
		if p.Addr().BitLen() == int(f.size)*8 {
			return p
		}
	}
	return netip.Prefix{}
}

func (b *Backend) connect() (*nftables.Conn, error) {
	options := []nftables.ConnOption{nftables.WithSockOptions(func(c *netlink.Conn) error {
		return errors.Join(c.SetReadBuffer(socketBuffer), c.SetWriteBuffer(socketBuffer))
	})}
	if b.config.NetNS != 0 {
		options = append(options, nftables.WithNetNSFd(b.config.NetNS))
	}
	return nftables.New(options...)
}

// socketBuffer limits how large a transaction may be: all its messages are in
// one send, and the kernel queues an answer to each before the first is read.
// It is a limit, not memory taken.
const socketBuffer = 256 << 20

// Apply implements proxy.Backend.
func (b *Backend) Apply(rules proxy.Rules) error {
	conn, err := b.connect()
	if err != nil {
		return err
	}
	var wanted []ruleset
	for i, f := range b.families() {
		next := plan(rules, f, b.clusterCIDR(f))
		wanted = append(wanted, next)
		t := &batch{conn: conn, family: f, table: &nftables.Table{Family: f.table, Name: b.config.Table}}
		if b.applied == nil {
			t.replace(next)
		} else {
			t.update(b.applied[i], next)
		}
		if t.err != nil {
			return t.err
		}
	}
	if err := conn.Flush(); err != nil {
		// What the kernel holds is uncertain to us now: start anew.
		b.applied = nil
		return fmt.Errorf("nftables transaction for table %s: %w", b.config.Table, err)
	}
	stale := b.applied == nil || datagramsChanged(b.rules, rules)
	b.applied, b.rules = wanted, rules
	if stale {
		return b.forgetStaleFlows(rules)
	}
	return nil
}

// Intact implements proxy.Backend: the tables are there with their chains.
func (b *Backend) Intact() (bool, error) {
	if b.applied == nil {
		return true, nil
	}
	conn, err := b.connect()
	if err != nil {
		return false, err
	}
	for i, f := range b.families() {
		chains, err := conn.ListChainsOfTableFamily(f.table)
		if err != nil {
			return false, fmt.Errorf("listing chains: %w", err)
		}
		count := 0
		for _, c := range chains {
			if c.Table.Name == b.config.Table {
				count++
			}
		}
		if count != len(b.applied[i].chains) {
			b.applied = nil
			return false, nil
		}
	}
	return true, nil
}

// Remove implements proxy.Backend.
func (b *Backend) Remove() error {
	conn, err := b.connect()
	if err != nil {
		return err
	}
	// IPv6 too, whether or not it is on now: an earlier run may have had it.
	for _, f := range []family{ipv4, ipv6} {
		// Adding first makes the removal succeed when there is none.
		conn.DelTable(conn.AddTable(&nftables.Table{Family: f.table, Name: b.config.Table}))
	}
	b.applied = nil
	if err := conn.Flush(); err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
		return fmt.Errorf("removing nftables table %s: %w", b.config.Table, err)
	}
	return nil
}

// batch collects the messages for one family's table of a transaction.
type batch struct {
	conn   *nftables.Conn
	family family
	table  *nftables.Table
	err    error
}

func (b *batch) fail(err error) { b.err = errors.Join(b.err, err) }

func (b *batch) anonymous(set *nftables.Set, elements []nftables.SetElement) {
	if err := b.conn.AddSet(set, elements); err != nil {
		b.fail(err)
	}
}

// replace makes the table anew, whatever was there.
func (b *batch) replace(next ruleset) {
	b.conn.AddTable(b.table)
	b.conn.DelTable(b.table)
	b.conn.AddTable(b.table)
	for name := range next.elements {
		b.addSet(b.fixedSet(name))
	}
	b.update(ruleset{}, next)
}

// update sends the difference. Sets and chains come before what refers to
// them and go after it.
func (b *batch) update(before, next ruleset) {
	for name, timeout := range next.affinity {
		if old, ok := before.affinity[name]; !ok || old != timeout {
			if ok {
				continue // the rule carries the timeout
			}
			b.addSet(b.affinitySet(name, timeout))
		}
	}
	for name := range next.chains {
		if _, ok := before.chains[name]; !ok {
			b.conn.AddChain(b.chain(name))
		}
	}
	for name, rules := range next.chains {
		old, existed := before.chains[name]
		if existed && slices.EqualFunc(old, rules, func(a, b rule) bool { return a.String() == b.String() }) {
			continue
		}
		chain := &nftables.Chain{Name: name, Table: b.table}
		if existed {
			b.conn.FlushChain(chain)
		}
		for _, r := range rules {
			var exprs []expr.Any
			for _, s := range r {
				exprs = append(exprs, s.build(b)...)
			}
			b.conn.AddRule(&nftables.Rule{Table: b.table, Chain: chain, Exprs: exprs})
		}
	}
	for name, elements := range next.elements {
		b.updateElements(name, before.elements[name], elements)
	}
	// Chains that go may refer to each other: empty all, then remove.
	var gone []*nftables.Chain
	for name := range before.chains {
		if _, ok := next.chains[name]; !ok {
			gone = append(gone, &nftables.Chain{Name: name, Table: b.table})
		}
	}
	for _, chain := range gone {
		b.conn.FlushChain(chain)
	}
	for _, chain := range gone {
		b.conn.DelChain(chain)
	}
	for name, timeout := range before.affinity {
		if _, ok := next.affinity[name]; !ok {
			b.conn.DelSet(b.affinitySet(name, timeout))
		}
	}
}

func (b *batch) updateElements(name string, before, next map[key]target) {
	set := b.fixedSet(name)
	var removed, added []nftables.SetElement
	for k, t := range before {
		if now, ok := next[k]; !ok || now != t {
			removed = append(removed, b.element(set, k, t))
		}
	}
	for k, t := range next {
		if old, ok := before[k]; !ok || old != t {
			added = append(added, b.element(set, k, t))
		}
	}
	for part := range slices.Chunk(removed, largestMap) {
		if err := b.conn.SetDeleteElements(set, part); err != nil {
			b.fail(err)
		}
	}
	for part := range slices.Chunk(added, largestMap) {
		if err := b.conn.SetAddElements(set, part); err != nil {
			b.fail(err)
		}
	}
}

func (b *batch) addSet(set *nftables.Set) {
	if err := b.conn.AddSet(set, nil); err != nil {
		b.fail(err)
	}
}

// fixedSet describes one of the fixed maps and sets.
func (b *batch) fixedSet(name string) *nftables.Set {
	set := &nftables.Set{Table: b.table, Name: name, IsMap: true, DataType: nftables.TypeVerdict}
	addr, protocol, port := b.family.addr, nftables.TypeInetProto, nftables.TypeInetService
	switch name {
	case serviceNodePorts, noEndpointPorts, hostPorts:
		set.KeyType = nftables.MustConcatSetType(protocol, port)
	case hairpin:
		set.KeyType = nftables.MustConcatSetType(addr, addr, protocol, port)
		set.IsMap = false
	default:
		set.KeyType = nftables.MustConcatSetType(addr, protocol, port)
		set.IsMap = name != clusterIPs
	}
	return set
}

func (b *batch) affinitySet(name string, timeout time.Duration) *nftables.Set {
	return &nftables.Set{Table: b.table, Name: name, KeyType: b.family.addr, Dynamic: true, HasTimeout: true, Timeout: timeout, Size: 65535}
}

func (b *batch) element(set *nftables.Set, k key, t target) nftables.SetElement {
	var data []byte
	for _, a := range []netip.Addr{k.source, k.address} {
		if a.IsValid() {
			data = append(data, a.AsSlice()...)
		}
	}
	data = append(data, protocolNumber(k.protocol), 0, 0, 0)
	data = append(binary.BigEndian.AppendUint16(data, k.port), 0, 0)
	element := nftables.SetElement{Key: data}
	if set.IsMap {
		element.VerdictData = verdict(expr.VerdictGoto, string(t))
	}
	return element
}

// chain describes a chain; those named for a hook are attached to it.
func (b *batch) chain(name string) *nftables.Chain {
	c := &nftables.Chain{Name: name, Table: b.table}
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

func protocolNumber(p v1.Protocol) byte {
	switch p {
	case v1.ProtocolUDP:
		return unix.IPPROTO_UDP
	case v1.ProtocolSCTP:
		return unix.IPPROTO_SCTP
	}
	return unix.IPPROTO_TCP
}
