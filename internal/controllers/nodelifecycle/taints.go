package nodelifecycle

import (
	"cmp"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/nodestatus"
)

// conditionTaint is the key of the NoSchedule taint for a status of a condition.
type conditionTaint struct {
	condition v1.NodeConditionType
	status    v1.ConditionStatus
	key       string
}

func conditionTaints() []conditionTaint {
	return []conditionTaint{
		{v1.NodeReady, v1.ConditionFalse, v1.TaintNodeNotReady},
		{v1.NodeReady, v1.ConditionUnknown, v1.TaintNodeUnreachable},
		{v1.NodeMemoryPressure, v1.ConditionTrue, v1.TaintNodeMemoryPressure},
		{v1.NodeDiskPressure, v1.ConditionTrue, v1.TaintNodeDiskPressure},
		{v1.NodeNetworkUnavailable, v1.ConditionTrue, v1.TaintNodeNetworkUnavailable},
		{v1.NodePIDPressure, v1.ConditionTrue, v1.TaintNodePIDPressure},
	}
}

// taints returns the taints that a node should have: NoSchedule taints for its conditions,
// a NoExecute taint if evict is true and the node is not ready, and all other taints that
// it has now.
func taints(node *v1.Node, evict bool, now time.Time) []v1.Taint {
	want := map[v1.Taint]bool{} // by key and effect; false means to remove the taint
	for _, t := range conditionTaints() {
		taint := v1.Taint{Key: t.key, Effect: v1.TaintEffectNoSchedule}
		c := nodestatus.Condition(node, t.condition)
		want[taint] = want[taint] || c != nil && c.Status == t.status
	}
	want[v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}] = node.Spec.Unschedulable
	notReady, unreachable := noExecute(v1.TaintNodeNotReady), noExecute(v1.TaintNodeUnreachable)
	want[notReady] = evict && nodestatus.Ready(node) == v1.ConditionFalse
	want[unreachable] = evict && nodestatus.Ready(node) == v1.ConditionUnknown

	out := slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t v1.Taint) bool {
		wanted, managed := want[v1.Taint{Key: t.Key, Effect: t.Effect}]
		return managed && !wanted
	})
	added := metav1.NewTime(now)
	for _, t := range slices.SortedFunc(maps.Keys(want), compareTaints) {
		if want[t] && !has(out, t) {
			t.TimeAdded = &added
			out = append(out, t)
		}
	}
	return out
}

func noExecute(key string) v1.Taint { return v1.Taint{Key: key, Effect: v1.TaintEffectNoExecute} }

func has(taints []v1.Taint, taint v1.Taint) bool {
	return slices.ContainsFunc(taints, func(t v1.Taint) bool { return t.Key == taint.Key && t.Effect == taint.Effect })
}

// hasEvictionTaint reports whether a node has one of the NoExecute taints of this
// controller.
func hasEvictionTaint(node *v1.Node) bool {
	return has(node.Spec.Taints, noExecute(v1.TaintNodeNotReady)) || has(node.Spec.Taints, noExecute(v1.TaintNodeUnreachable))
}

func compareTaints(a, b v1.Taint) int {
	return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Effect, b.Effect))
}
