// Package gangscheduling binds the pods of a PodGroup with a gang policy all
// together or not at all (KEP-4671).
//
//	PreEnqueue   fewer than minCount pods exist ──► gated
//	Permit       fewer than minCount are placed ──► wait for the others, which are decided next
//	             minCount are placed            ──► all that wait are bound
//	PostFilter   no node fits                   ──► the group is unschedulable
//	PostBind     a pod is bound                 ──► the group is scheduled
package gangscheduling

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingapi "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1beta1"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/podgroup"
)

// Name is the plugin's name in configurations.
const Name = "GangScheduling"

// permitTimeout bounds how long a pod waits for others of its gang.
const permitTimeout = 5 * time.Minute

// Factory describes the plugin.
func Factory() framework.Factory {
	return framework.Factory{Name: Name, New: func(_ context.Context, _ any, h *framework.Handle) (framework.Plugin, error) {
		if !h.Features.Enabled(feature.GenericWorkload) {
			return nil, errors.New("the feature gate GenericWorkload is off")
		}
		return &plugin{
			groups: h.Informers.Scheduling().V1beta1().PodGroups().Lister(), pods: h.PodGroups, waiting: h.WaitingPods,
			tooFew: framework.NewStatus(framework.UnschedulableAndUnresolvable, Name, "waiting for minCount pods from a gang to appear in scheduling queue"),
			wait:   framework.NewStatus(framework.Wait, Name, "waiting for minCount pods from a gang to be scheduled"),
			noHelp: framework.NewStatus(framework.Unschedulable, Name),
			status: &reporter{kube: h.Client, groups: h.Informers.Scheduling().V1beta1().PodGroups().Lister()},
		}, nil
	}}
}

type plugin struct {
	groups       schedulinglisters.PodGroupLister
	pods         framework.PodGroups
	waiting      framework.WaitingPods
	tooFew, wait *framework.Status
	noHelp       *framework.Status // of PostFilter, which makes no room
	status       *reporter
}

// Name implements framework.Plugin.
func (*plugin) Name() string { return Name }

// minCount returns how many pods the gang of a pod needs, 0 if it has none.
func (p *plugin) minCount(pod *v1.Pod) (int, error) {
	group, ok := podgroup.Of(pod)
	if !ok {
		return 0, nil
	}
	found, err := p.groups.PodGroups(group.Namespace).Get(group.Name)
	if err != nil || found.Spec.SchedulingPolicy.Gang == nil {
		return 0, err
	}
	return int(found.Spec.SchedulingPolicy.Gang.MinCount), nil
}

// PreEnqueue implements framework.PreEnqueuePlugin.
func (p *plugin) PreEnqueue(_ context.Context, pod *framework.PodInfo) *framework.Status {
	least, err := p.minCount(pod.Pod)
	group, _ := podgroup.Of(pod.Pod)
	switch {
	case apierrors.IsNotFound(err):
		return framework.NewStatus(framework.UnschedulableAndUnresolvable, Name,
			fmt.Sprintf("waiting for pods's pod group %q to appear in scheduling queue", group.Name))
	case err != nil:
		return framework.AsStatus(Name, err)
	case least > 0 && p.pods.Count(group) < least:
		return p.tooFew
	}
	return nil
}

// Permit implements framework.PermitPlugin.
func (p *plugin) Permit(_ context.Context, _ *framework.CycleState, pod *framework.PodInfo, _ string) (*framework.Status, time.Duration) {
	least, err := p.minCount(pod.Pod)
	if err != nil {
		return framework.AsStatus(Name, err), 0
	}
	if least == 0 {
		return nil, 0
	}
	group, _ := podgroup.Of(pod.Pod)
	if p.pods.NumPlaced(group) < least {
		return p.wait, permitTimeout
	}
	// Hardly any pods wait once their group has enough of them, while each of the
	// thousands that it may still get comes here.
	for w := range p.waiting.All() {
		if of, ok := podgroup.Of(w.PodInfo().Pod); ok && of == group {
			w.Allow(Name)
		}
	}
	return nil, 0
}

// Missing implements framework.PodGroupPlugin.
func (p *plugin) Missing(pod *framework.PodInfo) (n int, ok bool) {
	least, err := p.minCount(pod.Pod)
	if err != nil || least == 0 {
		return 0, false
	}
	group, _ := podgroup.Of(pod.Pod)
	return max(0, least-p.pods.NumPlaced(group)), true
}

// PostFilter implements framework.PostFilterPlugin. It reports in the status of
// the group that no node fits a pod of the group.
func (p *plugin) PostFilter(ctx context.Context, _ *framework.CycleState, pod *framework.PodInfo, snapshot *framework.Snapshot, nodes *framework.NodeToStatus) (*framework.PostFilterResult, *framework.Status) {
	if group, ok := podgroup.Of(pod.Pod); ok {
		unfit := &framework.FitError{NumAllNodes: snapshot.NumNodes(), Nodes: nodes}
		p.status.report(ctx, group, metav1.Condition{Status: metav1.ConditionFalse, Reason: schedulingapi.PodGroupReasonUnschedulable, Message: unfit.Error()})
	}
	return nil, p.noHelp
}

// PostBind implements framework.PostBindPlugin. The requirements of the group
// are met when the first of its pods is bound.
func (p *plugin) PostBind(ctx context.Context, _ *framework.CycleState, pod *framework.PodInfo, _ string) {
	if group, ok := podgroup.Of(pod.Pod); ok {
		p.status.report(ctx, group, metav1.Condition{Status: metav1.ConditionTrue, Reason: "Scheduled", Message: "All required pods have been scheduled"})
	}
}

// EventsToRegister implements framework.EnqueueExtensions. Events of pods of
// the same group and of the group itself help if the group then has enough
// pods.
func (p *plugin) EventsToRegister(ctx context.Context) ([]framework.ClusterEventWithHint, error) {
	enough := func(pod *framework.PodInfo, same bool) framework.QueueingHint {
		return framework.QueueIf(same && p.PreEnqueue(ctx, pod).IsSuccess())
	}
	sameGroup := func(pod *framework.PodInfo, _, other *v1.Pod) framework.QueueingHint {
		mine, _ := podgroup.Of(pod.Pod)
		group, ok := podgroup.Of(other)
		return enough(pod, ok && group == mine)
	}
	index := &framework.PodIndex{OfPod: func(pod *framework.PodInfo) string { return groupKey(pod.Pod) }, OfEvent: groupOfEvent}
	return framework.Indexed(index, []framework.ClusterEventWithHint{
		framework.On(framework.UnscheduledPod, framework.Add, sameGroup),
		framework.On(framework.AssignedPod, framework.Add, sameGroup),
		framework.On(framework.PodGroup, framework.Add|framework.Update, func(pod *framework.PodInfo, old, group *schedulingapi.PodGroup) framework.QueueingHint {
			if old != nil && old.UID == group.UID && equality.Semantic.DeepEqual(old.Spec, group.Spec) {
				return framework.QueueSkip // the status, which this plugin writes, helps no pod
			}
			mine, _ := podgroup.Of(pod.Pod)
			return enough(pod, group.Namespace == mine.Namespace && group.Name == mine.Name)
		}),
	}), nil
}

// groupKey is the group of a pod as a key of an index, "" if it has none.
func groupKey(pod *v1.Pod) string {
	group, ok := podgroup.Of(pod)
	if !ok {
		return ""
	}
	return group.String()
}

// groupOfEvent returns the group that an event is about.
func groupOfEvent(_, obj any) (key string, ok bool) {
	switch about := obj.(type) {
	case *v1.Pod:
		return groupKey(about), true
	case *schedulingapi.PodGroup:
		return types.NamespacedName{Namespace: about.Namespace, Name: about.Name}.String(), true
	}
	return "", false
}
