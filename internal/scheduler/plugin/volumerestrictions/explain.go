package volumerestrictions

import (
	"fmt"
	"slices"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// ExplainPod implements framework.PodExplainer.
func (p *plugin) ExplainPod(_ *framework.CycleState, pod *framework.PodInfo) []framework.Obstacle {
	return framework.MissingClaims(p.claims, pod.Pod)
}

// Explain implements framework.Explainer: it names the pods that have the same
// disk, and the claims that another pod uses.
func (p *plugin) Explain(state *framework.CycleState, _ *framework.PodInfo, n *framework.NodeInfo) (out []framework.Obstacle) {
	r, _ := p.state.Get(state)
	for _, disk := range r.disks {
		for _, other := range n.Pods {
			if conflicts(disk, other.Pod) {
				name := other.Pod.Namespace + "/" + other.Pod.Name
				out = append(out, framework.Obstacle{
					Text:     fmt.Sprintf("pod %s on the node has mounted the disk of volume %s", name, disk.Name),
					Remedies: []string{"delete pod " + name, "mount the disk read-only in both pods"},
				})
			}
		}
	}
	if r.users == 0 {
		return out
	}
	for _, claim := range r.claims {
		i := slices.IndexFunc(n.Pods, func(other *framework.PodInfo) bool { return slices.Contains(other.Claims, claim) })
		user := "another pod"
		if i >= 0 {
			user = "pod " + n.Pods[i].Pod.Namespace + "/" + n.Pods[i].Pod.Name
		}
		out = append(out, framework.Obstacle{
			Text:     fmt.Sprintf("PersistentVolumeClaim %s has the access mode ReadWriteOncePod, and %s uses it", claim, user),
			Remedies: []string{"delete " + user, "use a claim with the access mode ReadWriteOnce"},
		})
	}
	return out
}
