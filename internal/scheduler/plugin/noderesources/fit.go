// Package noderesources compares what a pod requests with what nodes have:
// NodeResourcesFit and NodeResourcesBalancedAllocation.
package noderesources

import (
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	kubescheduler "k8s.io/kube-scheduler/config/v1"

	"github.com/coracle-io/coracle/internal/resource/core/resourcelist"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/extendedresource"
	"github.com/coracle-io/coracle/internal/scheduler/podgroup"
)

// FitName is the name of NodeResourcesFit in configurations.
const FitName = "NodeResourcesFit"

// FitFactory describes NodeResourcesFit.
func FitFactory() framework.Factory {
	return framework.WithArguments(FitName, setFitDefaults, validateFit, newFit)
}

type fit struct {
	resources, groups []string // ignored
	strategy          strategy
	last              *framework.Status // of Filter: most nodes have the same shortages
	// classes are of extended resources that DynamicResources allocates.
	classes *extendedresource.Classes
	// nodes and bound are for hints; nil: a pod that leaves may help every other.
	nodes corelisters.NodeLister
	bound framework.BoundPods
}

func newFit(ctx context.Context, a *kubescheduler.NodeResourcesFitArgs, h *framework.Handle) (framework.Plugin, error) {
	strategy, err := newStrategy(ctx, a.ScoringStrategy, h)
	if err != nil {
		return nil, err
	}
	f := &fit{resources: a.IgnoredResources, groups: a.IgnoredResourceGroups, strategy: strategy}
	if h == nil || h.Informers == nil {
		return f, nil
	}
	f.nodes, f.bound = h.Informers.Core().V1().Nodes().Lister(), h.Bound
	f.classes, err = extendedresource.New(ctx, h.Informers)
	return f, err
}

// Name implements framework.Plugin.
func (*fit) Name() string { return FitName }

// HandlesDeferredResizes implements framework.DeferredResizePlugin.
func (*fit) HandlesDeferredResizes() {}

// Filter implements framework.FilterPlugin: everything that does not fit is named. A pod
// that is on the node already, and has been resized, must fit beside the others. The
// snapshot knows its newest requests.
func (f *fit) Filter(_ context.Context, _ *framework.CycleState, pod *framework.PodInfo, n *framework.NodeInfo) *framework.Status {
	if pod.Pod.Spec.NodeName == n.Name {
		if rest, on := n.Without(pod.Pod.UID); on != nil {
			n, pod = rest, on
		}
	}
	want := &pod.Requests
	if len(want.Scalar) == 0 && n.Requested.Pods+1 <= n.Allocatable.Pods && fits(want.CPU, n.Allocatable.CPU, n.Requested.CPU) &&
		fits(want.Memory, n.Allocatable.Memory, n.Requested.Memory) &&
		fits(want.EphemeralStorage, n.Allocatable.EphemeralStorage, n.Requested.EphemeralStorage) {
		return nil
	}
	s := f.shortages(want, n)
	if s != nil && s.Code() == f.last.Code() && slices.Equal(s.Reasons(), f.last.Reasons()) {
		return f.last
	}
	f.last = s
	return s
}

func fits(want, allocatable, used int64) bool { return want <= 0 || want <= allocatable-used }

func (f *fit) shortages(want *framework.Resources, n *framework.NodeInfo) *framework.Status {
	var reasons []string
	code := framework.Unschedulable
	check := func(name string, want, allocatable, used int64) {
		if fits(want, allocatable, used) {
			return
		}
		reasons = append(reasons, "Insufficient "+name)
		if want > allocatable {
			code = framework.UnschedulableAndUnresolvable
		}
	}
	if n.Requested.Pods+1 > n.Allocatable.Pods {
		reasons = append(reasons, "Too many pods")
	}
	check("cpu", want.CPU, n.Allocatable.CPU, n.Requested.CPU)
	check("memory", want.Memory, n.Allocatable.Memory, n.Requested.Memory)
	check("ephemeral-storage", want.EphemeralStorage, n.Allocatable.EphemeralStorage, n.Requested.EphemeralStorage)
	for name, amount := range want.Scalar {
		if !f.ignores(name) && !fits(amount, n.Allocatable.Scalar[name], n.Requested.Scalar[name]) && !f.classes.OnNode(name, n) {
			check(string(name), amount, n.Allocatable.Scalar[name], n.Requested.Scalar[name])
		}
	}
	if len(reasons) == 0 {
		return nil
	}
	slices.Sort(reasons)
	return framework.NewStatus(code, FitName, reasons...)
}

// ignores reports whether the arguments leave an extended resource out.
func (f *fit) ignores(name v1.ResourceName) bool {
	group, _, _ := strings.Cut(string(name), "/")
	return (slices.Contains(f.resources, string(name)) || slices.Contains(f.groups, group)) && resourcelist.IsExtended(name)
}

// isScalar reports whether a resource counts only for pods that request it.
func isScalar(name v1.ResourceName) bool {
	return name != v1.ResourceCPU && name != v1.ResourceMemory && name != v1.ResourceEphemeralStorage
}

// Score implements framework.ScorePlugin.
func (f *fit) Score(ctx context.Context, cycle *framework.CycleState, pod *framework.PodInfo, n *framework.NodeInfo) (int64, *framework.Status) {
	return f.strategy.score(ctx, cycle, pod, n), nil
}

// SignPod implements framework.SignPlugin. Pods with extended resources do not
// sign: classes of devices may provide those, which change without the node.
func (*fit) SignPod(pod *framework.PodInfo) (fragment string, ok bool) {
	return pod.RequestsSignature(), len(pod.Requests.Scalar) == 0
}

// EventsToRegister implements framework.EnqueueExtensions. It registers pods
// that leave or shrink on a node where the pod fits then, nodes that come or grow
// if the pod fits on them at least while they are empty, or that leave an extended
// resource to devices, and classes of devices for one. Room for another pod of its group may help a pod: the
// other then leaves room where the pod fits.
func (f *fit) EventsToRegister(context.Context) ([]framework.ClusterEventWithHint, error) {
	return framework.Indexed(&framework.PodIndex{OfPod: indexKey}, []framework.ClusterEventWithHint{
		framework.On(framework.AssignedPod, framework.Delete, func(pod *framework.PodInfo, gone, _ *v1.Pod) framework.QueueingHint {
			return framework.QueueIf(gone == nil || f.mayFit(pod, gone.Spec.NodeName))
		}),
		framework.On(framework.AssignedPod, framework.UpdatePodScaleDown, func(pod *framework.PodInfo, old, other *v1.Pod) framework.QueueingHint {
			if old == nil || other == nil {
				return framework.Queue
			}
			less := inGroup(pod) || grew(&pod.Requests, &framework.NewPodInfo(other).Requests, &framework.NewPodInfo(old).Requests)
			return framework.QueueIf(less && f.mayFit(pod, other.Spec.NodeName))
		}),
		{Event: framework.ClusterEvent{Resource: framework.TargetPod, Action: framework.UpdatePodScaleDown}},
		framework.On(framework.DeviceClass, framework.Add|framework.Update, func(pod *framework.PodInfo, old, class *resourceapi.DeviceClass) framework.QueueingHint {
			return framework.QueueIf(class == nil || extendedresource.Gains(pod, old, class))
		}),
		framework.On(framework.Node, framework.Add|framework.UpdateNodeAllocatable, func(pod *framework.PodInfo, old, node *v1.Node) framework.QueueingHint {
			if on := pod.Pod.Spec.NodeName; on != "" && on != node.Name {
				return framework.QueueSkip
			}
			if inGroup(pod) {
				return framework.Queue
			}
			empty := framework.NewNodeInfo(node.Name)
			empty.SetNode(node)
			if f.shortages(&pod.Requests, empty) != nil {
				return framework.QueueSkip
			}
			if old == nil {
				return framework.Queue
			}
			before := framework.ResourcesOf(old.Status.Allocatable)
			return framework.QueueIf(grew(&pod.Requests, &before, &empty.Allocatable) || f.leftToDevices(&pod.Requests, &before, empty))
		}),
	}), nil
}

// indexKey is all that the hints read of a pod.
func indexKey(pod *framework.PodInfo) string {
	return fmt.Sprintf("%d %t %t %s %s", pod.Priority, neverPreempts(pod), inGroup(pod), pod.Pod.Spec.NodeName, pod.RequestsSignature())
}

func inGroup(pod *framework.PodInfo) bool {
	_, ok := podgroup.Of(pod.Pod)
	return ok
}

func neverPreempts(pod *framework.PodInfo) bool {
	policy := pod.Pod.Spec.PreemptionPolicy
	return policy != nil && *policy == v1.PreemptNever
}

// mayFit reports whether a pod may have room after one on a node has left or
// shrunk: on that node, or anywhere if it may preempt pods, since the other may
// have kept it from that in other ways, or if another pod of its group may take
// the room. node is "" for a pod that was only assumed on a node. A pod that runs and
// has been resized needs room on its own node.
func (f *fit) mayFit(pod *framework.PodInfo, node string) bool {
	if on := pod.Pod.Spec.NodeName; on != "" && node != "" {
		return on == node
	}
	if f.bound == nil || node == "" || inGroup(pod) || !neverPreempts(pod) && f.bound.HasBelow(pod.Priority) {
		return true
	}
	object, err := f.nodes.Get(node)
	if err != nil {
		return false // it is gone
	}
	n := &framework.NodeInfo{
		Node: object, Name: node, Allocatable: framework.ResourcesOf(object.Status.Allocatable), Requested: f.bound.RequestedOn(node),
	}
	return f.shortages(&pod.Requests, n) == nil
}

// leftToDevices reports whether a node has come to leave an extended resource that is
// wanted to devices.
func (f *fit) leftToDevices(wanted, before *framework.Resources, n *framework.NodeInfo) bool {
	for name, want := range wanted.Scalar {
		if want > 0 && before.Scalar[name] != 0 && f.classes.OnNode(name, n) {
			return true
		}
	}
	return false
}

// grew reports whether there is more than before of anything that is wanted.
func grew(wanted, before, now *framework.Resources) bool {
	if now.Pods > before.Pods || wanted.CPU > 0 && now.CPU > before.CPU || wanted.Memory > 0 && now.Memory > before.Memory ||
		wanted.EphemeralStorage > 0 && now.EphemeralStorage > before.EphemeralStorage {
		return true
	}
	for name, want := range wanted.Scalar {
		if want > 0 && now.Scalar[name] > before.Scalar[name] {
			return true
		}
	}
	return false
}
