package extender

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/coracle-io/coracle/internal/amount"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/supervise"
)

// maxMessages bounds how many different messages an extender gives a pod: each
// becomes a part of the pod's condition.
const maxMessages = 32

// Filter asks one extender after the other which of the nodes are feasible. It
// returns those that are left, in the same order, and why others were rejected.
func (e *Extenders) Filter(ctx context.Context, pod *framework.PodInfo, nodes []*framework.NodeInfo) ([]*framework.NodeInfo, map[string]*framework.Status, error) {
	rejected := map[string]*framework.Status{}
	for _, one := range e.interested(pod.Pod, func(e *extender) string { return e.FilterVerb }) {
		if len(nodes) == 0 {
			break
		}
		result, err := one.filter(ctx, pod.Pod, nodes)
		if err != nil {
			if err := one.ignored(ctx, pod.Pod, err); err != nil {
				return nil, nil, err
			}
			continue
		}
		reasons := &reasons{statuses: map[reason]*framework.Status{}}
		var left []*framework.NodeInfo
		for _, n := range nodes {
			if message, failed := result.FailedAndUnresolvableNodes[n.Name]; failed {
				rejected[n.Name] = reasons.status(framework.UnschedulableAndUnresolvable, message)
			} else if message, failed := result.FailedNodes[n.Name]; failed {
				rejected[n.Name] = reasons.status(framework.Unschedulable, message)
			}
			if result.feasible[n.Name] {
				left = append(left, n)
			}
		}
		nodes = left
	}
	return nodes, rejected, nil
}

// filterResult is an answer with the names of the feasible nodes.
type filterResult struct {
	filterAnswer
	feasible map[string]bool
}

// filterAnswer is what counts of an extenderv1.ExtenderFilterResult. Of a node only the
// name is decoded: its quantities may take hours to parse (see internal/amount).
type filterAnswer struct {
	Nodes *struct {
		Items []struct {
			Metadata struct{ Name string }
		}
	}
	NodeNames                               *[]string
	FailedNodes, FailedAndUnresolvableNodes extenderv1.FailedNodesMap
	Error                                   string
}

func (e *extender) filter(ctx context.Context, pod *v1.Pod, nodes []*framework.NodeInfo) (*filterResult, error) {
	result := &filterResult{feasible: make(map[string]bool, len(nodes))}
	if err := e.call(ctx, e.FilterVerb, e.arguments(pod, nodes), &result.filterAnswer); err != nil {
		return nil, err
	}
	if result.Error != "" {
		return nil, errors.New(cut(result.Error))
	}
	var names []string
	if e.NodeCacheCapable && result.NodeNames != nil {
		names = *result.NodeNames
	} else if result.Nodes != nil {
		for i := range result.Nodes.Items {
			names = append(names, result.Nodes.Items[i].Metadata.Name)
		}
	}
	asked := make(map[string]bool, len(nodes))
	for _, n := range nodes {
		asked[n.Name] = true
	}
	for _, name := range names {
		if !asked[name] {
			return nil, fmt.Errorf("extender %q claims a filtered node %q which is not found in the input node list", e.url, cut(name))
		}
		result.feasible[name] = true
	}
	return result, nil
}

// arguments are the pod and the nodes, or their names if the extender knows
// the nodes.
func (e *extender) arguments(pod *v1.Pod, nodes []*framework.NodeInfo) *extenderv1.ExtenderArgs {
	if e.NodeCacheCapable {
		names := make([]string, 0, len(nodes))
		for _, n := range nodes {
			names = append(names, n.Name)
		}
		return &extenderv1.ExtenderArgs{Pod: pod, NodeNames: &names}
	}
	list := &v1.NodeList{Items: make([]v1.Node, 0, len(nodes))}
	for _, n := range nodes {
		list.Items = append(list.Items, *n.Node)
	}
	return &extenderv1.ExtenderArgs{Pod: pod, Nodes: list}
}

// reasons makes the statuses of one answer, one for each message.
type reasons struct {
	statuses map[reason]*framework.Status
}

type reason struct {
	code    framework.Code
	message string
}

func (r *reasons) status(code framework.Code, message string) *framework.Status {
	key := reason{code, cut(message)}
	if s, ok := r.statuses[key]; ok {
		return s
	}
	if len(r.statuses) >= maxMessages {
		key.message = "node(s) were rejected by an extender"
	}
	s := framework.NewStatus(code, framework.ExtenderName, key.message)
	r.statuses[key] = s
	return s
}

// maxScoreFactor brings the scores of extenders into the range of the plugins'.
const maxScoreFactor = framework.MaxNodeScore / extenderv1.MaxExtenderPriority

// Prioritize adds the scores of all extenders to the scores of the nodes. An
// extender that fails adds nothing, whether it is ignorable or not.
func (e *Extenders) Prioritize(ctx context.Context, pod *framework.PodInfo, nodes []*framework.NodeInfo, scores []int64) {
	asked := e.interested(pod.Pod, func(e *extender) string { return e.PrioritizeVerb })
	if len(asked) == 0 {
		return
	}
	answers := make([]extenderv1.HostPriorityList, len(asked))
	errs := supervise.ForEach(len(asked), func(i int) error {
		return asked[i].call(ctx, asked[i].PrioritizeVerb, asked[i].arguments(pod.Pod, nodes), &answers[i])
	})
	sums := make(map[string]int64, len(nodes))
	for i, answer := range answers {
		if errs[i] != nil {
			klog.FromContext(ctx).V(5).Info("Failed to run extender's priority function. No score given by this extender.",
				"extender", asked[i].URLPrefix, "pod", klog.KObj(pod.Pod), "err", errs[i].Error())
			continue
		}
		for _, host := range answer {
			score := amount.Times(amount.Times(max(host.Score, extenderv1.MinExtenderPriority), asked[i].Weight), maxScoreFactor)
			sums[host.Host] = amount.Sum(sums[host.Host], score)
		}
	}
	for i, n := range nodes {
		scores[i] = amount.Sum(max(scores[i], 0), sums[n.Name])
	}
}

// Bind has the first extender bind the pod that can and wants to. bound is
// false if the plugins are to do it.
func (e *Extenders) Bind(ctx context.Context, pod *framework.PodInfo, node string) (bound bool, err error) {
	for _, one := range e.interested(pod.Pod, func(e *extender) string { return e.BindVerb }) {
		if err := one.bind(ctx, pod.Pod, node); err != nil {
			if err := one.ignored(ctx, pod.Pod, err); err != nil {
				return true, err
			}
			continue
		}
		return true, nil
	}
	return false, nil
}

func (e *extender) bind(ctx context.Context, pod *v1.Pod, node string) error {
	var result extenderv1.ExtenderBindingResult
	err := e.call(ctx, e.BindVerb, &extenderv1.ExtenderBindingArgs{PodName: pod.Name, PodNamespace: pod.Namespace, PodUID: pod.UID, Node: node}, &result)
	if err == nil && result.Error != "" {
		err = errors.New(cut(result.Error))
	}
	return err
}
