package iptables

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/order"
	"github.com/coracle-io/coracle/internal/proxy"
)

// source is what a part was made from: a port of a Service, or a host port.
type source struct {
	service  proxy.PortName
	hostPort proxy.LocalPort
}

// compare orders sources. A host port of one address comes before those of all.
func (s source) compare(o source) int {
	a, b := s.hostPort, o.hostPort
	return cmp.Or(
		cmp.Compare(s.service.Namespace, o.service.Namespace), cmp.Compare(s.service.Name, o.service.Name),
		cmp.Compare(s.service.Port, o.service.Port), cmp.Compare(s.service.Protocol, o.service.Protocol),
		order.FalseFirst(!a.Address.IsValid(), !b.Address.IsValid()), a.Address.Compare(b.Address),
		cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol),
	)
}

// tables are what the tables of one family are to hold. A change of a Service changes
// them in place, and looks at nothing else as long as the Service adds the same rules to
// the chains that it shares with others.
type tables struct {
	settings settings
	parts    map[source]*part
	shared   map[string]chains
	own      int // how many rules are in chains of the parts' own
}

// newTables returns the tables for rules.
func newTables(s settings, rules proxy.Rules) *tables {
	t := &tables{settings: s, parts: map[source]*part{}}
	for name := range rules.Services.All() {
		if t.has(name.Family) {
			t.set(source{service: name}, t.ofService(rules, name))
		}
	}
	for k := range rules.HostPorts {
		if t.has(k.Family) {
			t.set(source{hostPort: k}, t.ofHostPort(rules, k))
		}
	}
	t.shared = s.shared(t.inOrder(), rules.NodePortRanges)
	return t
}

// follow changes the tables to those for other rules, which differ by d and have the same
// settings, and returns what is to become of the former ones.
func (t *tables) follow(rules proxy.Rules, d proxy.Difference) changes {
	all, same := newChanges(), !d.Ranges
	replace := func(s source, next *part) {
		before := cmp.Or(t.set(s, next), &part{})
		next = cmp.Or(next, &part{})
		all[nat].differ(before.own, next.own)
		same = same && before.sharesAs(next)
	}
	for _, name := range d.Services {
		if t.has(name.Family) {
			replace(source{service: name}, t.ofService(rules, name))
		}
	}
	for _, k := range d.HostPorts {
		if t.has(k.Family) {
			replace(source{hostPort: k}, t.ofHostPort(rules, k))
		}
	}
	if same {
		return all
	}
	before := t.shared
	t.shared = t.settings.shared(t.inOrder(), rules.NodePortRanges)
	for table, next := range t.shared {
		all[table].differ(before[table], next)
	}
	return all
}

// has reports whether the tables are those of a family.
func (t *tables) has(f v1.IPFamily) bool { return (f == v1.IPv4Protocol) == t.settings.is4 }

// set replaces the part of a source and returns the former one; nil is none.
func (t *tables) set(s source, next *part) (before *part) {
	before = t.parts[s]
	if before != nil {
		t.own -= before.own.size()
	}
	if next == nil {
		delete(t.parts, s)
		return before
	}
	t.own += next.own.size()
	t.parts[s] = next
	return before
}

// ofService returns the part of a port of a Service, nil if it is not in the rules.
func (t *tables) ofService(rules proxy.Rules, name proxy.PortName) *part {
	if p := rules.Services.Get(name); p != nil {
		return t.settings.ofService(name, p)
	}
	return nil
}

// ofHostPort returns the part of a host port, nil if it is not in the rules.
func (t *tables) ofHostPort(rules proxy.Rules, k proxy.LocalPort) *part {
	if to, ok := rules.HostPorts[k]; ok {
		return t.settings.ofHostPort(k, to)
	}
	return nil
}

// sharesAs reports whether two parts add the same rules to shared chains.
func (p *part) sharesAs(o *part) bool {
	return p.nat.equal(o.nat) && p.filter.equal(o.filter) && slices.Equal(p.closed, o.closed)
}

func (c chains) equal(o chains) bool {
	return maps.EqualFunc(c, o, func(a, b []string) bool { return slices.Equal(a, b) })
}

// inOrder returns the parts in an order that does not depend on chance.
func (t *tables) inOrder() []*part {
	var list []*part
	for _, s := range slices.SortedFunc(maps.Keys(t.parts), source.compare) {
		list = append(list, t.parts[s])
	}
	return list
}

// size returns the number of rules in a table.
func (t *tables) size(table string) int {
	n := t.shared[table].size()
	if table == nat {
		n += t.own
	}
	return n
}

func (c chains) size() (n int) {
	for _, rules := range c {
		n += len(rules)
	}
	return n
}

// change is what is to become of one table.
type change struct {
	// chains are made, or emptied, and filled with these rules.
	chains chains
	// commands are commands of iptables about built-in chains.
	commands []string
	// stale chains are removed.
	stale []string
}

// changes are what is to become of the tables, by name.
type changes map[string]*change

func newChanges() changes {
	return changes{mangle: {chains: chains{}}, filter: {chains: chains{}}, nat: {chains: chains{}}}
}

// replacing returns the changes that lead to t from whatever iptables-save has told.
func (t *tables) replacing(s *saved) changes {
	all := newChanges()
	for table, shared := range t.shared {
		maps.Copy(all[table].chains, shared)
	}
	for _, p := range t.parts {
		maps.Copy(all[nat].chains, p.own)
	}
	for chain := range s.chains[nat] {
		if _, wanted := all[nat].chains[chain]; !wanted && isOfPart(chain) {
			all[nat].discard(chain, s.used[place{nat, chain}])
		}
	}
	for _, j := range t.settings.jumps() {
		if !s.has(j) {
			all[j.table].commands = append(all[j.table].commands, "-I "+j.from+" "+j.rule())
		}
	}
	return all
}

// discard removes a chain, or makes it empty if rules of other programs use it.
func (c *change) discard(chain string, used bool) {
	if used {
		c.chains[chain] = nil
	} else {
		c.stale = append(c.stale, chain)
	}
}

// differ adds what differs between chains.
func (c *change) differ(before, next chains) {
	for chain, rules := range next {
		if old, existed := before[chain]; !existed || !slices.Equal(old, rules) {
			c.chains[chain] = rules
		}
	}
	for chain := range before {
		if _, stays := next[chain]; !stays {
			c.stale = append(c.stale, chain)
		}
	}
}

// input returns what iptables-restore reads to make the changes, nil if there are none.
// Each table is one transaction. A chain loses its rules before any chain is removed,
// so that none of those is in use.
func (all changes) input() []byte {
	var b bytes.Buffer
	for _, table := range []string{mangle, filter, nat} {
		c := all[table]
		if len(c.chains)+len(c.commands)+len(c.stale) == 0 {
			continue
		}
		fmt.Fprintf(&b, "*%s\n", table)
		names := slices.Sorted(maps.Keys(c.chains))
		slices.Sort(c.stale)
		for _, chain := range slices.Concat(names, c.stale) {
			fmt.Fprintf(&b, ":%s - [0:0]\n", chain)
		}
		for _, command := range c.commands {
			fmt.Fprintln(&b, command)
		}
		for _, chain := range names {
			for _, rule := range c.chains[chain] {
				fmt.Fprintf(&b, "-A %s %s\n", chain, rule)
			}
		}
		for _, chain := range c.stale {
			fmt.Fprintf(&b, "-X %s\n", chain)
		}
		b.WriteString("COMMIT\n")
	}
	return b.Bytes()
}
