package interpodaffinity

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// EventsToRegister implements framework.EnqueueExtensions. It registers pods
// that a required term selects, or that leave and had an anti-affinity to this
// one, and nodes with the topology keys. The labels of a namespace can change what
// any term selects.
func (*plugin) EventsToRegister(context.Context) ([]framework.ClusterEventWithHint, error) {
	return framework.Indexed(&framework.PodIndex{OfPod: indexKey}, []framework.ClusterEventWithHint{
		framework.On(framework.AssignedPod, framework.Add|framework.Delete|framework.UpdatePodLabel, afterPod),
		{Event: framework.ClusterEvent{Resource: framework.TargetPod, Action: framework.UpdatePodLabel}},
		framework.On(framework.Node, framework.Add|framework.UpdateNodeLabel, afterNode),
		{Event: framework.ClusterEvent{Resource: framework.Namespace, Action: framework.All}},
	}), nil
}

// indexKey is all that the hints read of a pod.
func indexKey(pod *framework.PodInfo) string {
	key := fmt.Sprintf("%q %q", pod.Pod.Namespace, labels.Set(pod.Pod.Labels).String())
	for _, terms := range [...][]framework.AffinityTerm{pod.RequiredAffinity, pod.RequiredAntiAffinity} {
		for i := range terms {
			key += " " + terms[i].Key()
		}
		key += ";"
	}
	return key
}

// afterPod: a pod counts for an affinity if all of its terms select the pod. One more
// helps; one less does if there may be none left, and the affinity selects the waiting
// pod itself, which may be the first then.
func afterPod(pod *framework.PodInfo, old, other *v1.Pod) framework.QueueingHint {
	counted, counts := countsFor(pod.RequiredAffinity, old), countsFor(pod.RequiredAffinity, other)
	if counts && !counted || counted && !counts && countsFor(pod.RequiredAffinity, pod.Pod) {
		return framework.Queue
	}
	lifted := func(t framework.AffinityTerm) bool { return selects(&t, old) && !selects(&t, other) }
	if slices.ContainsFunc(pod.RequiredAntiAffinity, lifted) {
		return framework.Queue
	}
	return framework.QueueIf(old != nil && other == nil && slices.ContainsFunc(framework.NewPodInfo(old).RequiredAntiAffinity,
		func(t framework.AffinityTerm) bool { return selects(&t, pod.Pod) }))
}

// countsFor reports whether a pod, which may be nil, counts for the affinity of others.
func countsFor(terms []framework.AffinityTerm, p *v1.Pod) bool {
	return len(terms) > 0 && !slices.ContainsFunc(terms, func(t framework.AffinityTerm) bool { return !selects(&t, p) })
}

func selects(t *framework.AffinityTerm, p *v1.Pod) bool { return p != nil && t.MayMatch(p) }

// afterNode: a new node must have the keys of the affinity. Another label of a
// known one may lift the anti-affinity of pods there, which can be about any key.
func afterNode(pod *framework.PodInfo, old, node *v1.Node) framework.QueueingHint {
	return framework.QueueIf(old != nil || !slices.ContainsFunc(pod.RequiredAffinity, func(t framework.AffinityTerm) bool {
		_, ok := node.Labels[t.TopologyKey]
		return !ok
	}))
}
