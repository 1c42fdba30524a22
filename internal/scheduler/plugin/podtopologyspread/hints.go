package podtopologyspread

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// EventsToRegister implements framework.EnqueueExtensions. It registers pods
// that change what a constraint counts, and nodes that change the domains.
func (p *plugin) EventsToRegister(context.Context) ([]framework.ClusterEventWithHint, error) {
	return framework.Indexed(&framework.PodIndex{OfPod: indexKey}, []framework.ClusterEventWithHint{
		framework.On(framework.AssignedPod, framework.Add|framework.Delete|framework.UpdatePodLabel|framework.UpdateOther, p.afterPod),
		{Event: framework.ClusterEvent{Resource: framework.TargetPod, Action: framework.UpdatePodLabel | framework.UpdatePodToleration}},
		framework.On(framework.Node, framework.Add|framework.Delete|framework.UpdateNodeLabel|framework.UpdateNodeTaint, p.afterNode),
	}), nil
}

// indexKey is all that the hints read of a pod. Its owner decides which default
// constraints it gets.
func indexKey(pod *framework.PodInfo) string {
	read := v1.Pod{Spec: v1.PodSpec{
		TopologySpreadConstraints: pod.Pod.Spec.TopologySpreadConstraints, NodeSelector: pod.Pod.Spec.NodeSelector, Tolerations: pod.Pod.Spec.Tolerations,
	}}
	read.Namespace, read.Labels, read.OwnerReferences = pod.Pod.Namespace, pod.Pod.Labels, pod.Pod.OwnerReferences
	if a := pod.Pod.Spec.Affinity; a != nil {
		read.Spec.Affinity = &v1.Affinity{NodeAffinity: a.NodeAffinity}
	}
	text, err := read.Marshal() // maps in the order of their keys
	if err != nil {
		return "pod " + string(pod.Pod.UID)
	}
	return string(text)
}

func (p *plugin) afterPod(pod *framework.PodInfo, old, other *v1.Pod) framework.QueueingHint {
	constraints := p.constraintsOf(pod, v1.DoNotSchedule)
	if len(constraints) == 0 {
		return framework.Queue // the pod or its defaults have changed
	}
	return framework.QueueIf(slices.ContainsFunc(constraints, func(c constraint) bool {
		counts := func(p *v1.Pod) bool { return p != nil && c.selects(p, pod.Pod.Namespace) }
		if old == nil || other == nil {
			return counts(old) || counts(other)
		}
		return counts(old) != counts(other)
	}))
}

func (p *plugin) afterNode(pod *framework.PodInfo, old, node *v1.Node) framework.QueueingHint {
	constraints := p.constraintsOf(pod, v1.DoNotSchedule)
	if len(constraints) == 0 {
		return framework.Queue
	}
	affinity := nodeaffinity.GetRequiredNodeAffinity(pod.Pod)
	// role holds the node's part in a constraint: the value of its domain,
	// whether the pod could be there, and whether its pods count.
	type role struct {
		value           string
		member, counted bool
	}
	roleOf := func(c *constraint, node *v1.Node) (r role) {
		if node == nil {
			return r
		}
		n := framework.NewNodeInfo(node.Name)
		n.SetNode(node)
		if r.member = hasAllKeys(n, constraints); r.member {
			r.value = node.Labels[c.TopologyKey]
			r.counted = c.counted(pod, &affinity, n)
		}
		return r
	}
	return framework.QueueIf(slices.ContainsFunc(constraints, func(c constraint) bool { return roleOf(&c, old) != roleOf(&c, node) }))
}
