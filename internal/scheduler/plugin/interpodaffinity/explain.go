package interpodaffinity

import (
	"fmt"
	"slices"

	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Explain implements framework.Explainer: it names the pods that are missing
// or in the way.
func (p *plugin) Explain(state *framework.CycleState, pod *framework.PodInfo, n *framework.NodeInfo) (out []framework.Obstacle) {
	s, _ := p.filterKey.Get(state)
	for i, counts := range s.affinity {
		term, domain := &pod.RequiredAffinity[i], counts.Domain(n)
		switch {
		case domain < 0:
			out = append(out, missingKey(n, term))
		case counts.At(domain) == 0 && !s.first():
			value := counts.Value(domain)
			out = append(out, framework.Obstacle{
				Text:     fmt.Sprintf("pod affinity: no pod of %s in %s=%s", term, term.TopologyKey, value),
				Remedies: []string{fmt.Sprintf("run a pod of %s in %s=%s", term, term.TopologyKey, value)},
			})
		}
	}
	for i, counts := range s.anti {
		if counts.On(n) == 0 {
			continue
		}
		term, value := &pod.RequiredAntiAffinity[i], counts.Value(counts.Domain(n))
		other := s.find(term.TopologyKey, value, func(o *framework.PodInfo) bool { return term.Matches(o.Pod, s.snapshot.Namespaces()) })
		out = append(out, inTheWay("pod anti-affinity: the pod keeps away from", other, term, value))
	}
	var explained []string // topology keys, of which several terms may have each
	for _, counts := range s.existing {
		key := counts.Key()
		if counts.On(n) == 0 || slices.Contains(explained, key) {
			continue
		}
		explained = append(explained, key)
		value := counts.Value(counts.Domain(n))
		if other, term := s.forbidding(pod, key, value); other != nil {
			out = append(out, inTheWay("anti-affinity of another pod: this pod is kept away by", other, term, value))
		}
	}
	return out
}

func missingKey(n *framework.NodeInfo, term *framework.AffinityTerm) framework.Obstacle {
	return framework.Obstacle{
		Text:     fmt.Sprintf("pod affinity: the node has no label %s", term.TopologyKey),
		Remedies: []string{fmt.Sprintf("kubectl label node %s %s=VALUE", n.Name, term.TopologyKey)},
	}
}

// inTheWay explains an anti-affinity. other may be nil.
func inTheWay(how string, other *framework.PodInfo, term *framework.AffinityTerm, value string) framework.Obstacle {
	o := framework.Obstacle{Text: fmt.Sprintf("%s a pod of %s in %s=%s", how, term, term.TopologyKey, value)}
	if other != nil {
		o.Text = fmt.Sprintf("%s %s (%s) in %s=%s", how, klog.KObj(other.Pod), term, term.TopologyKey, value)
		o.Remedies = []string{fmt.Sprintf("move pod %s out of %s=%s", klog.KObj(other.Pod), term.TopologyKey, value)}
	}
	return o
}

// find returns a pod of a domain, or nil.
func (s *preFilterState) find(key, value string, wanted func(*framework.PodInfo) bool) *framework.PodInfo {
	for _, n := range s.snapshot.Nodes() {
		if has, ok := n.Node.Labels[key]; !ok || has != value {
			continue
		}
		for _, other := range n.Pods {
			if wanted(other) {
				return other
			}
		}
	}
	return nil
}

// forbidding returns a pod of a domain whose required anti-affinity selects
// the pod, and the term.
func (s *preFilterState) forbidding(pod *framework.PodInfo, key, value string) (*framework.PodInfo, *framework.AffinityTerm) {
	var term *framework.AffinityTerm
	other := s.find(key, value, func(o *framework.PodInfo) bool {
		for i := range o.RequiredAntiAffinity {
			if t := &o.RequiredAntiAffinity[i]; t.TopologyKey == key && t.Matches(pod.Pod, s.snapshot.Namespaces()) {
				term = t
				return true
			}
		}
		return false
	})
	return other, term
}
