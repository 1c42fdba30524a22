package gateway

import "strings"

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

// hostSet is a set of hosts.
type hostSet struct {
	exact map[string]bool
	wide  []string // wildcards, and all hosts
}

// hostsOf returns the hosts of the routes of a kind at a listener.
func (l *listener) hostsOf(kind string) *hostSet {
	if l.hosts[kind] == nil {
		l.hosts[kind] = &hostSet{exact: map[string]bool{}}
	}
	return l.hosts[kind]
}

func (s *hostSet) add(hosts []string) {
	for _, h := range hosts {
		if isExact(h) {
			s.exact[h] = true
		} else {
			s.wide = append(s.wide, h)
		}
	}
}

// overlaps reports whether a host and one of the set have a name in common.
func (s *hostSet) overlaps(host string) bool {
	if s.exact[host] {
		return true
	}
	for _, w := range s.wide {
		if _, ok := commonHost(w, host); ok {
			return true
		}
	}
	if !isExact(host) {
		for e := range s.exact {
			if covers(host, e) {
				return true
			}
		}
	}
	return false
}

// isExact reports whether a host is one name.
func isExact(host string) bool { return host != "" && !strings.HasPrefix(host, "*.") }
