// Package nftables applies a proxy's Rules to the kernel by netlink, in the
// design of KEP-3866: maps lead from address, protocol and port to a chain, so
// that a packet costs the same with one Service as with ten thousand. Each
// difference between Rules is one transaction.
package nftables

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/nft"
	"github.com/coracle-io/coracle/internal/proxy"
	"github.com/coracle-io/coracle/internal/proxy/conntrack"
)

// Config configures a Backend.
type Config struct {
	// Table is the name of the tables, one for each family. Each cluster on a
	// machine needs its own.
	Table string
	// ClusterCIDRs are the ranges of pods, at most one of each family.
	ClusterCIDRs []netip.Prefix
	// Local says which connections are those of pods. Other connections to a
	// cluster IP are masqueraded.
	Local proxy.Local
	// MasqueradeAll masquerades all connections to cluster IPs.
	MasqueradeAll bool
	// Mark is the bit of the packet mark for packets to masquerade, 0x4000 by
	// default.
	Mark uint32
	// Conntrack are the settings of connection tracking. They are applied in the
	// namespace of this process only, and what they change is logged to Log.
	Conntrack conntrack.Settings
	Log       klog.Logger
	// Metrics gets metrics of failed transactions and of the flows that are deleted; nil
	// is none.
	Metrics prometheus.Registerer
	// IPv6 adds a table for IPv6.
	IPv6 bool
	// NetNS is the file descriptor of the network namespace to work in; 0 means
	// the namespace of this process.
	NetNS int
}

// Backend is a proxy.Backend. One goroutine uses it.
type Backend struct {
	*nft.Tables[*table]
	config Config
	rules  proxy.Rules
	tables map[string]*table // by family, what the kernel holds if Tables.Known
	flows  *conntrack.Table
	failed *prometheus.CounterVec // transactions; nil counts none
	// datagrams says that rules for UDP differ from those that flows follows.
	datagrams bool
	// delivery is the zero value in the mode nftables.
	delivery Delivery
}

// New returns a backend. It changes nothing.
func New(c Config) *Backend {
	c.Mark = cmp.Or(c.Mark, masqueradeMark)
	b := &Backend{Tables: &nft.Tables[*table]{Name: c.Table, IPv6: c.IPv6, NetNS: c.NetNS}, config: c, tables: map[string]*table{}}
	b.flows = conntrack.New(conntrack.Config{Settings: c.Conntrack, Log: c.Log, Metrics: c.Metrics, IPv6: c.IPv6, NetNS: c.NetNS})
	if c.Metrics != nil {
		b.countFailures(c.Metrics)
	}
	return b
}

// settings returns what all rules of a family depend on.
func (b *Backend) settings(f nft.Family, rules proxy.Rules) settings {
	return settings{family: f, pods: b.pods(f, rules), mark: b.config.Mark, masqueradeAll: b.config.MasqueradeAll, delivery: b.delivery}
}

func (b *Backend) pods(f nft.Family, rules proxy.Rules) proxy.PodTraffic {
	return b.config.Local.Of(f.Size == 4, b.config.ClusterCIDRs, rules)
}

// plan returns the table of a family for rules that differ from b.rules. Without the
// former table, or if all rules change, it makes a new one.
func (b *Backend) plan(f nft.Family, rules proxy.Rules, d proxy.Difference) *table {
	former, s := b.tables[f.Name], b.settings(f, rules)
	t := former
	switch {
	case !b.Known():
		t = newTable(s, rules)
	case !former.sameFrame(s):
		t = newTable(s, rules)
		t.was = former.ruleset
	default:
		t.follow(b.rules, rules, d)
	}
	b.tables[f.Name] = t
	return t
}

// countFailures counts failed transactions, under kube-proxy's name.
func (b *Backend) countFailures(r prometheus.Registerer) {
	b.failed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeproxy_sync_proxy_rules_nftables_sync_failures_total", Help: "[ALPHA] Cumulative proxy nftables sync failures",
	}, []string{"ip_family"})
	r.MustRegister(b.failed)
	for _, f := range nft.Families(b.config.IPv6) {
		b.failed.WithLabelValues(string(f.IPFamily())) // 0 until the first one
	}
}

// Apply implements proxy.Backend. One transaction has the rules of all families, so
// that it fails for all.
func (b *Backend) Apply(rules proxy.Rules) error {
	err := b.apply(rules)
	if err != nil && b.failed != nil {
		for _, f := range nft.Families(b.config.IPv6) {
			b.failed.WithLabelValues(string(f.IPFamily())).Inc()
		}
	}
	return err
}

func (b *Backend) apply(rules proxy.Rules) error {
	known, d := b.Known(), proxy.Compare(b.rules, rules)
	if err := b.Replace(
		func(f nft.Family) *table { return b.plan(f, rules, d) },
		func(messages *nft.Batch, _, next *table) { update(messages, next.was, next.is) },
	); err != nil {
		return err
	}
	for _, t := range b.tables {
		t.was, t.is = ruleset{}, ruleset{}
	}
	b.rules = rules
	b.datagrams = b.datagrams || !known || d.HasDatagrams()
	if b.datagrams {
		rules = b.delivery.answering(rules)
	}
	if err := b.flows.Follow(rules, b.datagrams); err != nil {
		return err
	}
	b.datagrams = false
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
	case serviceNodePorts, noEndpointPorts, hostPorts, proxyPorts:
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
	return !slices.Contains([]string{hairpin, clusterIPs, clusterAddresses, balancedIPs, proxyPorts}, name)
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
