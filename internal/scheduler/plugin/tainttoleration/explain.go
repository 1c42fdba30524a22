package tainttoleration

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Explain implements framework.Explainer: it lists the taints that the pod
// does not tolerate.
func (p *plugin) Explain(_ *framework.CycleState, pod *framework.PodInfo, n *framework.NodeInfo) (out []framework.Obstacle) {
	for i := range n.Node.Spec.Taints {
		taint := &n.Node.Spec.Taints[i]
		if taint.Effect == v1.TaintEffectPreferNoSchedule || podquery.Tolerates(pod.Pod.Spec.Tolerations, taint, p.numeric) {
			continue
		}
		out = append(out, framework.Obstacle{Text: "taint " + taint.ToString() + " is not tolerated", Remedies: remedies(n.Name, taint)})
	}
	return out
}

// remedies are the ways around a taint. Taints of the node's conditions come
// back if they are removed by hand, and it seldom helps to tolerate them.
func remedies(node string, taint *v1.Taint) []string {
	const ofCondition = "node.kubernetes.io/"
	switch {
	case taint.Key == v1.TaintNodeUnschedulable:
		return []string{"kubectl uncordon " + node}
	case taint.Key == v1.TaintNodeNotReady || taint.Key == v1.TaintNodeUnreachable:
		return []string{"make the node ready (kubectl describe node " + node + ")"}
	case strings.HasPrefix(taint.Key, ofCondition) && taint.Key != v1.TaintNodeOutOfService:
		return []string{"end the node's " + strings.TrimPrefix(taint.Key, ofCondition) + " (kubectl describe node " + node + ")"}
	}
	return []string{fmt.Sprintf("kubectl taint node %s %s-", node, taint.ToString()), "add the toleration " + toleration(taint)}
}

func toleration(taint *v1.Taint) string {
	if taint.Value == "" {
		return fmt.Sprintf("{key: %s, operator: Exists, effect: %s}", taint.Key, taint.Effect)
	}
	return fmt.Sprintf("{key: %s, operator: Equal, value: %s, effect: %s}", taint.Key, taint.Value, taint.Effect)
}
