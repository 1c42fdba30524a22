package nftables

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/proxy"
)

// table is what the table of one family holds. A change of a Service changes it in
// place: it formats the rules of that Service before and after the change, and touches
// nothing else, however many Services there are.
//
//	Rules ──Compare──► names of what differs ──follow──► table ──was, is──► update
type table struct {
	settings
	ruleset
	// shared are the elements that several parts of the table have, such as the
	// address of a Service with several ports: how many have them, by target.
	shared map[place]map[target]int
	// was and is have what the last change touched, before and after it.
	was, is ruleset
}

// place is where an element is.
type place struct {
	set string
	key key
}

// newTable returns a table for all rules of a family. is has all of it, was nothing.
func newTable(s settings, rules proxy.Rules) *table {
	t := &table{settings: s, ruleset: newRuleset(s.delivery), shared: map[place]map[target]int{}}
	t.add(t.frame(rules))
	for name, port := range rules.Services.All() {
		if t.has(name.Family) {
			t.add(t.service(name, port))
		}
	}
	for k, pod := range rules.HostPorts {
		if t.has(k.Family) {
			t.add(t.hostPort(k, pod.To))
		}
	}
	t.is = t.ruleset
	return t
}

// has reports whether the table is that of a family.
func (t *table) has(f v1.IPFamily) bool { return (f == v1.IPv4Protocol) == (t.family.Size == 4) }

// follow changes the table from one value of the rules to another.
func (t *table) follow(before, next proxy.Rules, d proxy.Difference) {
	old, now := t.parts(before, d), t.parts(next, d)
	touched := emptyRuleset()
	for _, p := range slices.Concat(old, now) {
		touched.merge(p)
	}
	t.was = t.only(touched)
	for _, p := range old {
		t.remove(p)
	}
	for _, p := range now {
		t.add(p)
	}
	t.is = t.only(touched)
}

// parts returns the parts of the table for what a difference names.
func (t *table) parts(rules proxy.Rules, d proxy.Difference) (list []ruleset) {
	if d.Ranges {
		list = append(list, t.frame(rules))
	}
	for _, name := range d.Services {
		if p := rules.Services.Get(name); p != nil && t.has(name.Family) {
			list = append(list, t.service(name, p))
		}
	}
	for _, k := range d.HostPorts {
		if pod, ok := rules.HostPorts[k]; ok && t.has(k.Family) {
			list = append(list, t.hostPort(k, pod.To))
		}
	}
	return list
}

// merge adds what a part of a table has.
func (r ruleset) merge(p ruleset) {
	maps.Copy(r.chains, p.chains)
	maps.Copy(r.affinity, p.affinity)
	for set, elements := range p.elements {
		for k, target := range elements {
			r.put(set, k, target)
		}
	}
}

// only returns the chains and elements of r whose names and keys another one has.
func (r ruleset) only(names ruleset) ruleset {
	some := emptyRuleset()
	for set := range r.elements {
		some.elements[set] = map[key]target{}
	}
	for name := range names.chains {
		if rules, ok := r.chains[name]; ok {
			some.chains[name] = rules
		}
	}
	for name := range names.affinity {
		if timeout, ok := r.affinity[name]; ok {
			some.affinity[name] = timeout
		}
	}
	for set, elements := range names.elements {
		for k := range elements {
			if t, ok := r.elements[set][k]; ok {
				some.elements[set][k] = t
			}
		}
	}
	return some
}

// add adds a part of the table.
func (t *table) add(p ruleset) {
	for set, elements := range p.elements {
		for k, target := range elements {
			t.take(place{set, k}, target)
		}
	}
	p.elements = nil
	t.merge(p)
}

// remove removes a part that was added. Each chain and set of addresses is that of
// one part.
func (t *table) remove(p ruleset) {
	for name := range p.chains {
		delete(t.chains, name)
	}
	for name := range p.affinity {
		delete(t.affinity, name)
	}
	for set, elements := range p.elements {
		for k, target := range elements {
			t.release(place{set, k}, target)
		}
	}
}

// take adds an element of a part.
func (t *table) take(at place, to target) {
	if other, taken := t.elements[at.set][at.key]; taken {
		if t.shared[at] == nil {
			t.shared[at] = map[target]int{other: 1}
		}
		t.shared[at][to]++
	}
	t.put(at.set, at.key, to)
}

// release removes an element of a part. Another part may have it, too.
func (t *table) release(at place, to target) {
	delete(t.elements[at.set], at.key)
	counts := t.shared[at]
	if counts == nil {
		return
	}
	if counts[to]--; counts[to] == 0 {
		delete(counts, to)
	}
	left := 0
	for other, n := range counts {
		left += n
		t.put(at.set, at.key, other)
	}
	if left == 1 {
		delete(t.shared, at)
	}
}
