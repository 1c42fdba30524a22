package gateway

import (
	"iter"
	"strings"
)

// intersection returns the hosts of a route at a listener, in lower case: those that both
// have, as the specification of HTTPRouteSpec.hostnames says. "" is all hosts.
func intersection(listener string, hostnames []string) []string {
	if len(hostnames) == 0 {
		return []string{listener}
	}
	var hosts []string
	for _, h := range hostnames {
		if common, ok := commonHost(listener, strings.ToLower(h)); ok {
			hosts = append(hosts, common)
		}
	}
	return hosts
}

// commonHost returns the more exact one of two hosts, if it is a part of the other one.
func commonHost(a, b string) (string, bool) {
	switch {
	case a == b, covers(a, b):
		return b, true
	case covers(b, a):
		return a, true
	}
	return "", false
}

// covers reports whether a host is all hosts or a wildcard that has another one below it.
func covers(wide, narrow string) bool {
	if wide == "" {
		return true
	}
	above, wildcard := strings.CutPrefix(wide, "*")
	return wildcard && strings.HasSuffix(strings.TrimPrefix(narrow, "*"), above) && len(narrow) > len(above)
}

// hostSet is a set of hosts. It has them by their keys: the name of one host, what follows
// the asterisk of a wildcard, or "" for all hosts.
type hostSet struct {
	hosts map[string]bool
	above map[string]bool // what has one of the hosts below it
}

// hostsOf returns the hosts of the routes of a kind at a listener.
func (l *listener) hostsOf(kind string) *hostSet {
	if l.hosts[kind] == nil {
		l.hosts[kind] = newHostSet()
	}
	return l.hosts[kind]
}

func newHostSet() *hostSet { return &hostSet{hosts: map[string]bool{}, above: map[string]bool{}} }

// wider returns the keys of the wildcards that have a host below them, and of all hosts.
func wider(of string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for key := of; key != ""; {
			if i := strings.IndexByte(key[1:], '.'); i >= 0 {
				key = key[i+1:]
			} else {
				key = ""
			}
			if !yield(key) {
				return
			}
		}
	}
}

func (s *hostSet) add(hosts []string) {
	for _, h := range hosts {
		key := strings.TrimPrefix(h, "*")
		s.hosts[key] = true
		for w := range wider(key) {
			s.above[w] = true
		}
	}
}

// has reports whether one of the set is the most exact one that has all names of a narrower
// host, or of the same one.
func (s *hostSet) has(one, narrower string) bool {
	key := strings.TrimPrefix(narrower, "*")
	if !s.hosts[key] {
		for key = range wider(key) {
			if s.hosts[key] {
				break
			}
		}
	}
	return key == strings.TrimPrefix(one, "*")
}

// overlaps reports whether a host and one of the set have a name in common. It does not
// look at all of the set, which is as large as tenants make it.
func (s *hostSet) overlaps(host string) bool {
	key := strings.TrimPrefix(host, "*")
	if s.hosts[key] || s.above[key] {
		return true
	}
	for w := range wider(key) {
		if s.hosts[w] {
			return true
		}
	}
	return false
}
