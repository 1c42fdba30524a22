package networkpolicy

import (
	"cmp"
	"crypto/sha256"
	"maps"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// isolations returns the addresses of the node's isolated pods, by what isolates them,
// and how many isolations each policy is part of. It adds the owners of addresses to r,
// and policies that are too many.
func (s *state) isolations(r *Rules) (isolated map[*isolation][]netip.Addr, used map[*compiled]int) {
	isolated, used = map[*isolation][]netip.Addr{}, map[*compiled]int{}
	of := map[string]candidates{}    // by namespace
	known := map[string]*isolation{} // by selection
	find := func(p *pod) *isolation {
		if i := known[p.selection()]; i != nil {
			return i
		}
		namespace := p.name.Namespace
		if _, ok := of[namespace]; !ok {
			of[namespace] = s.candidates(namespace)
			for _, c := range of[namespace].beyond {
				r.TooLarge = append(r.TooLarge, c.name)
			}
		}
		i := isolate(p, of[namespace])
		for _, c := range i.policies {
			used[c]++
		}
		known[p.selection()] = i
		return i
	}
	for _, p := range s.local {
		for _, a := range p.addresses() {
			if s.owner(a) != p {
				continue
			}
			if uid := p.runningUID(); uid != "" {
				r.Owners[a] = uid
			}
			if i := find(p); i.ingress || i.egress {
				isolated[i] = append(isolated[i], a)
			}
		}
	}
	return isolated, used
}

// maxPolicies is how many policies of a namespace are looked at for each pod. Further
// ones isolate all pods of the namespace and allow nothing.
const maxPolicies = 10_000

// candidates are the policies of a namespace that may select a pod, the oldest first,
// and those beyond maxPolicies.
type candidates struct{ policies, beyond []*compiled }

func (s *state) candidates(namespace string) candidates {
	all := slices.SortedFunc(maps.Values(s.policies[namespace]), byAge)
	n := min(len(all), maxPolicies)
	return candidates{all[:n], all[n:]}
}

// byAge orders policies, the oldest first.
func byAge(a, b *compiled) int {
	return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(a.name.Namespace, b.name.Namespace), cmp.Compare(a.name.Name, b.name.Name))
}

// selection names the namespace and labels of a pod. Pods with the same ones are
// isolated alike.
func (p *pod) selection() string {
	if p.selected == "" {
		sum := sha256.Sum256([]byte(p.name.Namespace + " " + p.labels.String()))
		p.selected = string(sum[:])
	}
	return p.selected
}

// isolation is what isolates a pod: the directions, and the policies that may allow
// something.
type isolation struct {
	ingress, egress bool
	policies        []*compiled
}

// isolate returns what isolates a pod.
func isolate(p *pod, of candidates) *isolation {
	out := &isolation{ingress: len(of.beyond) > 0, egress: len(of.beyond) > 0}
	for _, c := range of.policies {
		if c.pods.Matches(p.labels) {
			out.ingress, out.egress = out.ingress || c.ingress, out.egress || c.egress
			out.policies = append(out.policies, c)
		}
	}
	return out
}

// without returns the isolation in the form of Rules. What is in excess allows nothing.
func (i *isolation) without(excess map[*compiled]bool) Isolation {
	var out Isolation
	if i.ingress {
		out.Ingress = []types.NamespacedName{}
	}
	if i.egress {
		out.Egress = []types.NamespacedName{}
	}
	for _, c := range i.policies {
		if excess[c] {
			continue
		}
		if c.ingress {
			out.Ingress = append(out.Ingress, c.name)
		}
		if c.egress {
			out.Egress = append(out.Egress, c.name)
		}
	}
	byName := func(a, b types.NamespacedName) int { return cmp.Compare(a.Name, b.Name) }
	slices.SortFunc(out.Ingress, byName)
	slices.SortFunc(out.Egress, byName)
	return out
}
