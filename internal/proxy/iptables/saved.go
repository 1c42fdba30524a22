package iptables

import (
	"regexp"
	"slices"
	"strings"
)

// saved is what iptables-save has told of the tables of a family.
type saved struct {
	// chains are the names of all chains, by table.
	chains map[string]map[string]bool
	// jumps are the rules of built-in chains that lead to ours, by table, without the
	// "-A " before each.
	jumps map[string][]string
	// used are our chains to which chains of other programs lead. Without these chains,
	// their rules could not be.
	used map[place]bool
	// owner is what marks the rules as those of a proxy of ours; "" is none.
	owner string
}

// place is a chain of a table.
type place struct{ table, chain string }

// parseSaved reads the output of iptables-save, or the list of a chain's rules.
func parseSaved(text string) *saved {
	s := &saved{chains: map[string]map[string]bool{}, jumps: map[string][]string{}, used: map[place]bool{}}
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
		end := " "
		if strings.HasPrefix(said, `"`) {
			said, end = said[1:], `"`
		}
		if said, _, _ = strings.Cut(said, end); strings.HasPrefix(said, ownerPrefix) {
			s.owner = said
		}
	}
	if isOurs(chain) {
		return
	}
	switch target := targetOf(rest); {
	case !isOurs(target):
	case slices.Contains([]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}, chain):
		s.jumps[table] = append(s.jumps[table], rule)
	default:
		s.used[place{table, target}] = true
	}
}

// quoted matches the texts of a rule, such as comments.
var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// targetOf returns the target of a rule, or "".
func targetOf(rule string) string {
	words := strings.Fields(quoted.ReplaceAllString(rule, ""))
	for i, word := range words[:max(0, len(words)-1)] {
		if word == "-j" || word == "-g" {
			return words[i+1]
		}
	}
	return ""
}

// has reports whether there is a jump.
func (s *saved) has(j jump) bool {
	return slices.ContainsFunc(s.jumps[j.table], func(rule string) bool {
		return strings.HasPrefix(rule, j.from+" ") && strings.HasSuffix(rule, " -j "+j.to) && strings.Contains(rule, `"`+j.comment+`"`)
	})
}

// isOfPart reports whether a chain has the name of a chain of a part. KUBE-XLB- is of
// kube-proxy before 1.24.
func isOfPart(chain string) bool {
	return slices.ContainsFunc([]string{"KUBE-SVC-", "KUBE-SVL-", "KUBE-SEP-", "KUBE-EXT-", "KUBE-FW-", "KUBE-HP-", "KUBE-XLB-"},
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

// removing returns the changes that remove everything of the proxy. Chains that are used
// by other programs become empty instead.
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
				c.discard(chain, s.used[place{table, chain}])
			}
		}
	}
	return all
}
