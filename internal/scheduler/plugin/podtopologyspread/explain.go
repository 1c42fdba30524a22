package podtopologyspread

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// namedDomains is how many domains an explanation lists.
const namedDomains = 3

// Explain implements framework.Explainer: it compares the node's domain with
// the emptiest one.
func (p *plugin) Explain(state *framework.CycleState, _ *framework.PodInfo, n *framework.NodeInfo) (out []framework.Obstacle) {
	s, _ := p.filterKey.Get(state)
	for i := range s.constraints {
		c, spread := &s.constraints[i], &s.spreads[i]
		domain := spread.topology.Domain(n)
		if domain < 0 {
			out = append(out, framework.Obstacle{
				Text:     fmt.Sprintf("the node has no label %s, over which the pod is to be spread", c.TopologyKey),
				Remedies: []string{fmt.Sprintf("kubectl label node %s %s=VALUE", n.Name, c.TopologyKey)},
			})
			continue
		}
		count := max(spread.counts[domain], 0)
		skew := count + s.self[i] - spread.least()
		if skew <= int64(c.MaxSkew) {
			continue
		}
		o := framework.Obstacle{Text: fmt.Sprintf("%s=%s has %d matching pods and the least is %d: one more makes a skew of %d, maxSkew is %d",
			c.TopologyKey, spread.topology.Value(domain), count, spread.least(), skew, c.MaxSkew)}
		if spread.few && c.MinDomains != nil {
			o.Text += fmt.Sprintf(" (the least counts as 0 while there are fewer than minDomains %d domains)", *c.MinDomains)
		} else if emptiest := spread.emptiest(); len(emptiest) > 0 {
			o.Remedies = append(o.Remedies, fmt.Sprintf("make room where the fewest pods are: %s=%s", c.TopologyKey, strings.Join(emptiest, ", ")))
		}
		o.Remedies = append(o.Remedies, fmt.Sprintf("set maxSkew of %s to %d", c.TopologyKey, skew), "set whenUnsatisfiable of "+c.TopologyKey+" to ScheduleAnyway")
		out = append(out, o)
	}
	return out
}

// emptiest returns some of the domains with the fewest pods.
func (s *spread) emptiest() (values []string) {
	for domain, count := range s.counts {
		if count != notCounted && count == s.lowest {
			values = append(values, s.topology.Value(domain))
		}
	}
	slices.Sort(values)
	if more := len(values) - namedDomains; more > 0 {
		values = append(values[:namedDomains], fmt.Sprintf("... (%d more)", more))
	}
	return values
}
