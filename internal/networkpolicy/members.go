package networkpolicy

import (
	"net/netip"

	"github.com/coracle-io/coracle/internal/persistent"
)

// group has the members of a Group.
type group struct {
	groupSelector
	of    Group
	stale bool // a namespace has changed, so that any pod may be a member
	found Addresses
}

// selects reports whether a group may have a pod as a member.
func (s *state) selects(g *group, p *pod) bool {
	return s.inNamespace(g, p.name.Namespace) && g.pods.Matches(p.labels)
}

func (s *state) inNamespace(g *group, namespace string) bool {
	if g.namespaces == nil {
		return g.of.Namespace == namespace
	}
	of, ok := s.namespaces[namespace]
	return ok && g.namespaces.Matches(of)
}

// follow makes the groups and ports follow a change of who has an address. touched are the
// pods that have or had it. The caller must hold the mutex.
func (s *state) follow(a netip.Addr, touched map[*pod]bool) {
	owner := s.owner(a)
	for _, g := range s.groups {
		switch {
		case g.stale: // all members are looked for
		case owner != nil && s.selects(g, owner):
			g.found = g.found.With(a, struct{}{})
		default:
			g.found = g.found.Without(a)
		}
	}
	owned := map[containerPort]bool{}
	if owner != nil {
		for _, c := range owner.ports {
			owned[c] = true
		}
	}
	for p := range touched {
		for _, c := range p.ports {
			found, used := s.ports[c.NamedPort]
			switch at := netip.AddrPortFrom(a, c.number); {
			case !used:
			case owned[c]:
				s.ports[c.NamedPort] = found.With(at, struct{}{})
			default:
				s.ports[c.NamedPort] = found.Without(at)
			}
		}
	}
}

// members returns a group with its members.
func (s *state) members(of Group, selector groupSelector) *group {
	if g := s.groups[of]; g != nil && !g.stale {
		return g
	}
	g, found := &group{groupSelector: selector, of: of}, map[netip.Addr]struct{}{}
	for namespace, pods := range s.pods {
		if !s.inNamespace(g, namespace) {
			continue
		}
		for _, p := range pods {
			if !g.pods.Matches(p.labels) {
				continue
			}
			for _, a := range p.addresses() {
				if s.owner(a) == p {
					found[a] = struct{}{}
				}
			}
		}
	}
	if g.found = persistent.Of(found); s.groups[of] != nil {
		g.found = changed(s.groups[of].found, g.found)
	}
	return g
}

// changed returns a version made from before with the addresses of next, so that what
// differs is found soon.
func changed(before, next Addresses) Addresses {
	all := before
	persistent.Diff(before, next, func(a netip.Addr) {
		if next.Has(a) {
			all = all.With(a, struct{}{})
		} else {
			all = all.Without(a)
		}
	})
	return all
}

// findPorts adds the ports of all pods to those with their names.
func (s *state) findPorts(named map[NamedPort]map[netip.AddrPort]struct{}) {
	if len(named) == 0 {
		return
	}
	for _, pods := range s.pods {
		for _, p := range pods {
			for _, c := range p.ports {
				found, ok := named[c.NamedPort]
				if !ok {
					continue
				}
				for _, a := range p.addresses() {
					if s.owner(a) == p {
						found[netip.AddrPortFrom(a, c.number)] = struct{}{}
					}
				}
			}
		}
	}
}
