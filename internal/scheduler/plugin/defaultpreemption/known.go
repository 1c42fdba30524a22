package defaultpreemption

import (
	"slices"
	"weak"

	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// knownCandidates remember what trials found for the last kind of preemptor:
// pods of one priority with one signature. A node gives the same
// candidate as long as
//
//   - its Generation is the same,
//   - the same pods are nominated for it, none of which is the preemptor,
//   - no pod on it is being evicted and none is nominated for it, which the
//     caller asks, or it is no candidate, and
//   - there is no disruption budget in the namespaces of its pods.
//
// Results that were found while nominations changed, or when a filter failed,
// are not stored.
//
// They belong to the scheduling cycle. They hold no pods: those may be gone.
type knownCandidates struct {
	signature any // nil: none
	priority  int32
	byNode    map[string]knownCandidate
}

type knownCandidate struct {
	generation uint64
	nominated  weak.Pointer[*framework.PodInfo] // the first pod that is nominated for the node
	why        *framework.Status                // it is no candidate; nil: it is one
	cost       cost
	victims    []types.UID
	namespaces []string // of the pods that could be victims
}

// of returns what is known for a kind of preemptor, nil if pods of that kind
// cannot be compared.
func (k *knownCandidates) of(signature any, priority int32) *knownCandidates {
	if signature == nil {
		return nil
	}
	if k.signature != signature || k.priority != priority {
		*k = knownCandidates{signature, priority, map[string]knownCandidate{}}
	}
	return k
}

// get returns what is known of a node. ok is false if that is nothing.
func (k *knownCandidates) get(n *framework.NodeInfo, nominated []*framework.PodInfo, b *budgetView) (known knownCandidate, ok bool) {
	known, ok = k.byNode[n.Name]
	return known, ok && known.generation == n.Generation && known.nominated == first(nominated) && !b.protects(known.namespaces)
}

// first identifies the pods that are nominated for a node: the nominator makes
// another slice with each change of them. It does not keep them in memory.
func first(nominated []*framework.PodInfo) weak.Pointer[*framework.PodInfo] {
	if len(nominated) == 0 {
		return weak.Pointer[*framework.PodInfo]{}
	}
	return weak.Make(&nominated[0])
}

// candidate returns the candidate of a node that get has returned.
func (k *knownCandidates) candidate(n *framework.NodeInfo) *candidate {
	known := k.byNode[n.Name]
	c := &candidate{node: n.Name, victims: make([]*framework.PodInfo, 0, len(known.victims))}
	for _, uid := range known.victims {
		i := slices.IndexFunc(n.Pods, func(p *framework.PodInfo) bool { return p.Pod.UID == uid }) // there as long as the generation is the same
		c.victims = append(c.victims, n.Pods[i])
	}
	return c
}

// set remembers the candidate of a node, or why there is none.
func (k *knownCandidates) set(n *framework.NodeInfo, nominated []*framework.PodInfo, c *candidate, why *framework.Status, priority int32, b *budgetView) {
	known := knownCandidate{generation: n.Generation, nominated: first(nominated), why: why}
	for _, p := range n.Pods {
		if p.Priority < priority && !slices.Contains(known.namespaces, p.Pod.Namespace) {
			known.namespaces = append(known.namespaces, p.Pod.Namespace)
		}
	}
	if b.protects(known.namespaces) {
		return
	}
	if c != nil {
		known.cost = c.cost()
		for _, victim := range c.victims {
			known.victims = append(known.victims, victim.Pod.UID)
		}
	}
	k.byNode[n.Name] = known
}
