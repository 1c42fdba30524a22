package extender

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// ProcessPreemption implements framework.PreemptionExtenders: each extender may
// leave nodes out and choose other victims on the rest.
func (e *Extenders) ProcessPreemption(ctx context.Context, pod *framework.PodInfo, snapshot *framework.Snapshot, candidates map[string]framework.Victims) (map[string]framework.Victims, error) {
	for _, one := range e.interested(pod.Pod, func(e *extender) string { return e.PreemptVerb }) {
		if len(candidates) == 0 {
			break
		}
		left, err := one.preempt(ctx, pod, snapshot, candidates)
		if err != nil {
			if err := one.ignored(ctx, pod.Pod, err); err != nil {
				return nil, err
			}
			continue
		}
		for node, victims := range left {
			if len(victims.Pods) > 0 {
				continue
			}
			if !one.Ignorable {
				return nil, fmt.Errorf("expected at least one victim pod on node %q", node)
			}
			klog.FromContext(ctx).Info("Ignored node for which the extender didn't report victims", "node", node, "extender", one.URLPrefix)
			delete(left, node)
		}
		candidates = left
	}
	return candidates, nil
}

func (e *extender) preempt(ctx context.Context, pod *framework.PodInfo, snapshot *framework.Snapshot, candidates map[string]framework.Victims) (map[string]framework.Victims, error) {
	arguments := &extenderv1.ExtenderPreemptionArgs{Pod: pod.Pod}
	if e.NodeCacheCapable {
		arguments.NodeNameToMetaVictims = map[string]*extenderv1.MetaVictims{}
	} else {
		arguments.NodeNameToVictims = map[string]*extenderv1.Victims{}
	}
	for node, victims := range candidates {
		violations := int64(victims.NumPDBViolations)
		if !e.NodeCacheCapable {
			sent := &extenderv1.Victims{NumPDBViolations: violations, Pods: make([]*v1.Pod, 0, len(victims.Pods))}
			for _, p := range victims.Pods {
				sent.Pods = append(sent.Pods, p.Pod)
			}
			arguments.NodeNameToVictims[node] = sent
			continue
		}
		sent := &extenderv1.MetaVictims{NumPDBViolations: violations, Pods: make([]*extenderv1.MetaPod, 0, len(victims.Pods))}
		for _, p := range victims.Pods {
			sent.Pods = append(sent.Pods, &extenderv1.MetaPod{UID: string(p.Pod.UID)})
		}
		arguments.NodeNameToMetaVictims[node] = sent
	}
	var result extenderv1.ExtenderPreemptionResult
	if err := e.call(ctx, e.PreemptVerb, arguments, &result); err != nil {
		return nil, err
	}
	out := make(map[string]framework.Victims, len(result.NodeNameToMetaVictims))
	for node, victims := range result.NodeNameToMetaVictims {
		if _, asked := candidates[node]; !asked {
			return nil, fmt.Errorf("extender %q claims to preempt on node %q, which is not a candidate", e.url, cut(node))
		}
		chosen, err := e.victims(pod, snapshot.Node(node), victims)
		if err != nil {
			return nil, err
		}
		out[node] = chosen
	}
	return out, nil
}

// victims finds the pods of an answer on their node. Only pods of lower
// priority than the preemptor can be victims.
func (e *extender) victims(preemptor *framework.PodInfo, n *framework.NodeInfo, answer *extenderv1.MetaVictims) (framework.Victims, error) {
	var out framework.Victims
	if answer == nil {
		return out, nil
	}
	on := make(map[string]*framework.PodInfo, len(n.Pods))
	for _, p := range n.Pods {
		on[string(p.Pod.UID)] = p
	}
	out.NumPDBViolations = int(max(answer.NumPDBViolations, 0))
	for _, meta := range answer.Pods {
		if meta == nil {
			continue
		}
		p := on[meta.UID]
		switch {
		case p == nil:
			return out, fmt.Errorf("extender %q claims to preempt pod (UID: %v) on node %q, but the pod is not found on that node", e.url, cut(meta.UID), n.Name)
		case p.Priority >= preemptor.Priority:
			return out, fmt.Errorf("extender %q claims to preempt pod %s on node %q, but its priority is not lower", e.url, klog.KObj(p.Pod), n.Name)
		}
		if !slices.Contains(out.Pods, p) {
			out.Pods = append(out.Pods, p)
		}
	}
	return out, nil
}
