package iptables

import (
	"slices"
	"strings"
)

// saved is what iptables-save has told of the tables of a family.
type saved struct {
	// chains are the names of all chains, by table.
	chains map[string]map[string]bool
	// jumps are the rules that lead from chains of others to ours, by table, without
	// the "-A " before each.
	jumps map[string][]string
	// owner is what marks the rules as those of a proxy of ours; "" is none.
	owner string
}

// parseSaved reads the output of iptables-save.
func parseSaved(text string) *saved {
	s := &saved{chains: map[string]map[string]bool{}, jumps: map[string][]string{}}
	table := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "*"); ok {
			table = name
			s.chains[table] = map[string]bool{}
		} else if chain, ok := strings.CutPrefix(line, ":"); ok && table != "" {
			chain, _, _ = strings.Cut(chain, " ")
			s.chains[table][chain] = true
		} else if rule, ok := strings.CutPrefix(line, "-A "); ok {
			s.addRule(table, rule)
		}
	}
	return s
}

// addRule reads a rule, which begins with the name of its chain.
func (s *saved) addRule(table, rule string) {
	chain, rest, _ := strings.Cut(rule, " ")
	if chain == canary {
		_, said, _ := strings.Cut(rest, "--comment ")
		said, _, _ = strings.Cut(said, " ")
		if said = strings.Trim(said, `"`); strings.HasPrefix(said, ownerPrefix) {
			s.owner = said
		}
	}
	if !isOurs(chain) && isOurs(targetOf(rule)) {
		s.jumps[table] = append(s.jumps[table], rule)
	}
}

// targetOf returns the target of a rule, or "".
func targetOf(rule string) string {
	const jump = " -j "
	i := strings.LastIndex(rule, jump)
	if i < 0 {
		return ""
	}
	target, _, _ := strings.Cut(rule[i+len(jump):], " ")
	return target
}

// has reports whether there is a jump.
func (s *saved) has(j jump) bool {
	return slices.ContainsFunc(s.jumps[j.table], func(rule string) bool {
		return strings.HasPrefix(rule, j.from+" ") && strings.HasSuffix(rule, " -j "+j.to) && strings.Contains(rule, `"`+j.comment+`"`)
	})
}

// isOfPart reports whether a chain has the name of a chain of a part.
func isOfPart(chain string) bool {
	return slices.ContainsFunc([]string{"KUBE-SVC-", "KUBE-SVL-", "KUBE-SEP-", "KUBE-EXT-", "KUBE-FW-", "KUBE-HP-"},
		func(prefix string) bool { return strings.HasPrefix(chain, prefix) })
}

// isOurs reports whether a chain is one of the proxy. The kubelet has chains whose
// names begin with KUBE-, too.
func isOurs(chain string) bool {
	return isOfPart(chain) || slices.Contains([]string{
		services, externalServices, nodePorts, hostPorts, postrouting, markMasquerade, forward, proxyFirewall, firewall, canary,
	}, chain)
}

// guards reports whether the chain that guards loopback addresses is there, and not only
// that of a kubelet.
func (s *saved) guards() bool { return s.has(guardAt("INPUT")) }

// removing returns the changes that remove everything of the proxy.
func (s *saved) removing() changes {
	all := newChanges()
	stays := func(chain string) bool { return !isOurs(chain) || chain == firewall && !s.guards() }
	for _, table := range []string{mangle, filter, nat} {
		c := all[table]
		for _, rule := range s.jumps[table] {
			if !stays(targetOf(rule)) {
				c.commands = append(c.commands, "-D "+rule)
			}
		}
		for chain := range s.chains[table] {
			if !stays(chain) {
				c.stale = append(c.stale, chain)
			}
		}
	}
	return all
}
