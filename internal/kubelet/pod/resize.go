package pod

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	resourcehelper "k8s.io/component-helpers/resource"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/kubelet/admit"
	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/plan"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	"github.com/coracle-io/coracle/internal/podquery"
)

// wanted returns the resource controls of a container's specification.
func (w *worker) wanted(pod *v1.Pod, c *v1.Container) *runtimeapi.LinuxContainerResources {
	return w.config.Node.Resources(pod, c)
}

// differs reports which controls of a running container differ from want. A
// runtime that does not report controls has no differences. The same CPU time in another
// period is none: the container keeps it until its CPU changes.
func differs(want, have *runtimeapi.LinuxContainerResources) (cpu, memory bool) {
	if have == nil || have.GetCpuShares() == 0 && have.GetMemoryLimitInBytes() == 0 && have.GetCpuQuota() == 0 {
		return false, false
	}
	cpu = have.GetCpuShares() != 0 && want.GetCpuShares() != have.GetCpuShares() || cpuTime(want) != cpuTime(have)
	return cpu, want.GetMemoryLimitInBytes() != have.GetMemoryLimitInBytes()
}

// keepsOther reports whether the kernel is to keep a container another amount of memory
// than it does, or to slow it down elsewhere. A container does not restart for that: if it
// restarts for its memory, it restarts for the request already. What a runtime does not
// report is no difference.
func keepsOther(want, have *runtimeapi.LinuxContainerResources) bool {
	for name, value := range want.GetUnified() {
		if other, reported := have.GetUnified()[name]; reported && other != value {
			return true
		}
	}
	return false
}

// cpuTime returns the quota of CPU time in thousandths of a CPU, 0 if there is none. It
// rounds up, because quotas are rounded down. The kernel's own period is 100 ms.
func cpuTime(r *runtimeapi.LinuxContainerResources) int64 {
	period := cmp.Or(r.GetCpuPeriod(), 100_000)
	return (max(r.GetCpuQuota(), 0)*1000 + period - 1) / period
}

// restartsFor reports whether a container asks to restart when its CPU or its memory
// changes.
func restartsFor(c *v1.Container, cpu, memory bool) bool {
	return slices.ContainsFunc(c.ResizePolicy, func(policy v1.ContainerResizePolicy) bool {
		return policy.RestartPolicy == v1.RestartContainer &&
			(cpu && policy.ResourceName == v1.ResourceCPU || memory && policy.ResourceName == v1.ResourceMemory)
	})
}

// resizeRestarts reports whether a container has to restart to get its allocated
// resources. It does not for a quota of CPU time that is lifted, which is no resize.
func (w *worker) resizeRestarts(pod *v1.Pod, c *v1.Container, running *cri.Container) bool {
	want := w.wanted(pod, c)
	cpu, memory := differs(want, running.Resources)
	return w.restarting[running.ID] || restartsFor(c, cpu && want.GetCpuQuota() >= 0, memory)
}

// idSet has the ids of containers.
type idSet map[string]bool

// resized returns those containers of s that still run, and those that have to restart
// for a resize from one allocation to another. A container restarts also for a resource
// that changes no control of the runtime, like a request of memory.
func (s idSet) resized(pod *v1.Pod, observed *cri.Pod, from, to *allocation) idSet {
	all := idSet{}
	for _, running := range observed.Running() {
		before, after := from.Containers[running.Name], to.Containers[running.Name]
		c := podquery.Container(&pod.Spec, running.Name)
		if s[running.ID] || c != nil && restartsFor(c, changes(before, after, v1.ResourceCPU), changes(before, after, v1.ResourceMemory)) {
			all[running.ID] = true
		}
	}
	return all
}

// changes reports whether the request or the limit of a resource is another one after
// a resize.
func changes(before, after v1.ResourceRequirements, name v1.ResourceName) bool {
	request, limit := before.Requests[name], before.Limits[name]
	return request.Cmp(after.Requests[name]) != 0 || limit.Cmp(after.Limits[name]) != 0
}

// fits returns the condition of a resize that has to wait: nil if the pod's
// requests and the requests of the other pods fit on the node together, also after
// the resizes that come before it. It wakes the workers of those that fit now. detail
// is the label in metrics of why it is infeasible, if it is.
func (w *worker) fits(pod *v1.Pod) (waits *v1.PodCondition, detail string) {
	allocatable, active := w.config.NodeStatus.Allocatable(), w.peers.Active()
	asked := &proposal{pod: pod, allocated: w.inbox.allocation().of(pod), since: w.inbox.deferredSince()}
	if detail, message := w.config.infeasible(asked.pod, asked.allocated, allocatable); message != "" {
		return pendingResize(v1.PodReasonInfeasible, message), detail
	}
	rejection := admit.Check(pod, nil, without(active, pod.UID), allocatable, nil)
	if rejection == nil {
		ahead, others := asked.after(deferredResizes(w.peers.list()), active, func(p *proposal, others []*v1.Pod) bool {
			_, message := w.config.infeasible(p.pod, p.allocated, allocatable)
			return message == "" && admit.Check(p.pod, nil, others, allocatable, nil) == nil
		})
		for _, p := range ahead {
			p.wake()
		}
		rejection = admit.Check(pod, nil, others, allocatable, nil)
	}
	if rejection != nil {
		return pendingResize(v1.PodReasonDeferred, rejection.Message), ""
	}
	return nil, ""
}

// infeasible returns why the node can never give a pod with these allocated resources
// those that it asks for, as the label of a metric and for users. The message is empty
// if it may.
func (c *Config) infeasible(pod, allocated *v1.Pod, allocatable v1.ResourceList) (detail, message string) {
	if message := c.Node.ResizeInfeasible(pod, allocated); message != "" {
		return "swap_limitation", message
	}
	if gate := feature.InPlacePodLevelResourcesVerticalScaling; !c.Features.Enabled(gate) && !equality.Semantic.DeepEqual(pod.Spec.Resources, allocated.Spec.Resources) {
		return "plr_feature_gate_off", string(gate) + " is disabled"
	}
	if detail, message := c.Placement.ResizeInfeasible(pod, allocated); message != "" {
		return detail, message
	}
	return "insufficient_node_allocatable", admit.TooBig(pod, allocatable)
}

// change is a change of the resource controls of a running container.
type change struct {
	container *cri.Container
	want      *runtimeapi.LinuxContainerResources
}

// controls returns the changes that give running containers the resources that
// wanted returns. It reports false if the plan kills one of them, or any container for
// the resize: the next sync continues, when the container has restarted.
func controls(pod *v1.Pod, observed *cri.Pod, p *plan.Plan, wanted func(*v1.Container) *runtimeapi.LinuxContainerResources) (all []change, ok bool) {
	if slices.ContainsFunc(p.Kill, func(k plan.Kill) bool { return k.Reason == plan.ReasonResize }) {
		return nil, false
	}
	for _, c := range observed.Running() {
		declared := podquery.Container(&pod.Spec, c.Name)
		if declared == nil {
			continue
		}
		want := wanted(declared)
		if cpu, memory := differs(want, c.Resources); !cpu && !memory && !keepsOther(want, c.Resources) {
			continue
		}
		if slices.ContainsFunc(p.Kill, func(k plan.Kill) bool { return k.ID == c.ID }) || p.KillPod {
			return nil, false
		}
		all = append(all, change{c, want})
	}
	return all, true
}

// belowUsage returns an error for a lower memory limit than what the container
// uses now, because the kernel would kill the container. It returns nil if the
// runtime does not say what the container uses.
func (ch change) belowUsage(ctx context.Context, runtime internalapi.RuntimeService) error {
	limit, before := ch.want.GetMemoryLimitInBytes(), ch.container.Resources.GetMemoryLimitInBytes()
	if limit == 0 || before != 0 && limit >= before {
		return nil
	}
	stats, err := runtime.ContainerStats(ctx, ch.container.ID)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("The memory that a container uses is not known before its resize", "container", ch.container.Name, "err", err)
		return nil
	}
	if used := stats.GetMemory().GetWorkingSetBytes().GetValue(); used >= uint64(limit) {
		return fmt.Errorf("attempting to set container %q memory limit (%d) below current usage (%d)", ch.container.Name, limit, used)
	}
	return nil
}

// resize changes the resource controls of running containers in place
// (KEP-1287) to the allocated resources, and those of the pod's control group. It
// leaves containers that the plan kills: they restart within the pod's group.
func (w *worker) resize(ctx context.Context, pod *v1.Pod, observed *cri.Pod, p *plan.Plan) {
	all, ok := controls(pod, observed, p, func(c *v1.Container) *runtimeapi.LinuxContainerResources { return w.wanted(pod, c) })
	asked, generation := w.inbox.unsettled()
	if asked == nil {
		generation = pod.Generation
	}
	if !ok {
		if p.KillPod {
			return
		}
		if err := w.group.settle(ctx, w.config, pod, observed, asked); err != nil {
			klog.FromContext(ctx).V(2).Info("The pod's control group cannot change before its containers have restarted", "err", err)
		}
		return
	}
	began := time.Now()
	fail := func(what string, err error) { // the next sync tries again
		w.metrics.resizes.took(began, false)
		message := fmt.Sprintf("%s: %v", what, err)
		w.inbox.setResize(&v1.PodCondition{Type: v1.PodResizeInProgress, Status: v1.ConditionTrue, Reason: v1.PodReasonError,
			Message: message, ObservedGeneration: generation})
		w.config.Recorder.Event(Reference(pod), v1.EventTypeWarning, "ResizeError", resizeMessage("Pod resize error", pod, generation, message))
	}
	if len(all) == 0 {
		if err := w.group.settle(ctx, w.config, pod, observed, asked); err != nil {
			fail("pod", err)
			return
		}
		w.completeResize(pod)
		return
	}
	if err := w.group.belowUsage(ctx, w.config, pod, observed); err != nil {
		fail("pod", err)
		return
	}
	for _, ch := range all {
		if err := ch.belowUsage(ctx, w.config.Runtime); err != nil {
			fail("container "+ch.container.Name, err)
			return
		}
	}
	if err := tellSandbox(ctx, w.config, pod, observed); err != nil {
		fail("pod", err)
		return
	}
	early := w.config.CGroups.Apply(pod)
	if early != nil {
		klog.FromContext(ctx).V(2).Info("The pod's control group cannot change before its containers do", "err", early)
	}
	for _, ch := range all {
		if err := w.config.Runtime.UpdateContainerResources(ctx, ch.container.ID, &runtimeapi.ContainerResources{Linux: ch.want}); err != nil {
			fail("container "+ch.container.Name, err)
			return
		}
		resized := *ch.container
		resized.Resources = ch.want
		next := *observed
		next.Containers = slices.Clone(observed.Containers)
		next.Containers[slices.Index(next.Containers, ch.container)] = &resized
		w.inbox.replaceObserved(observed, &next)
		observed = &next
	}
	if early != nil {
		if err := w.config.CGroups.Apply(pod); err != nil {
			fail("pod", err)
			return
		}
	}
	w.group = podGroup{resources: pod.Spec.Resources.DeepCopy(), allocated: w.inbox.allocation()}
	w.metrics.resizes.took(began, true)
	w.completeResize(pod)
}

// podGroup is what is known of a pod's control group. The zero value knows
// nothing.
type podGroup struct {
	resources *v1.ResourceRequirements // its pod-level resources
	allocated *allocation              // of the last resize that reached it
}

// tellSandbox tells the runtime which resources the control group of a pod is about to
// get. The runtime, or a plugin of it, may refuse them (KEP-5419). One that does not
// know the call accepts all.
func tellSandbox(ctx context.Context, config *Config, pod *v1.Pod, observed *cri.Pod) error {
	sandbox := observed.ReadySandbox()
	if sandbox == nil {
		return nil
	}
	_, err := config.Runtime.UpdatePodSandboxResources(ctx, spec.SandboxUpdate(sandbox.ID, pod, config.Node.Configuration))
	if err != nil && grpcstatus.Code(err) != codes.Unimplemented {
		return fmt.Errorf("updatePodSandboxResources failed for sandboxID %q: %w", sandbox.ID, err)
	}
	return nil
}

// settle gives the control group of a pod its resources: those of the pod as a whole,
// and what its containers have together after the resize to an allocation, nil if there
// is none. Containers that restart, or do not run now, start within these.
func (g *podGroup) settle(ctx context.Context, config *Config, pod *v1.Pod, observed *cri.Pod, resize *allocation) error {
	changed, err := g.resize(ctx, config, pod, observed)
	if err != nil || resize == nil || g.allocated == resize {
		return err
	}
	if !changed && observed.ReadySandbox() != nil { // the group of a new sandbox is made with them
		if err := tellSandbox(ctx, config, pod, observed); err != nil {
			return err
		}
		if err := config.CGroups.Apply(pod); err != nil {
			return err
		}
	}
	g.allocated = resize
	return nil
}

// resize gives the control group of a running pod its pod-level resources, and
// reports whether it had others. It returns an error for a memory limit below what
// the containers use, and if the runtime refuses the resources.
func (g *podGroup) resize(ctx context.Context, config *Config, pod *v1.Pod, observed *cri.Pod) (changed bool, err error) {
	if !resourcehelper.IsPodLevelResourcesSet(pod) || len(observed.Running()) == 0 || equality.Semantic.DeepEqual(g.resources, pod.Spec.Resources) {
		return false, nil
	}
	if err := g.belowUsage(ctx, config, pod, observed); err != nil {
		return false, err
	}
	if g.resources != nil { // not the resources that the sandbox was created with
		if err := tellSandbox(ctx, config, pod, observed); err != nil {
			return false, err
		}
	}
	if err := config.CGroups.Apply(pod); err != nil {
		if g.resources != nil {
			before := *pod
			before.Spec.Resources = g.resources
			err = errors.Join(err, tellSandbox(ctx, config, &before, observed))
		}
		return false, err
	}
	g.resources = pod.Spec.Resources.DeepCopy()
	return true, nil
}

// belowUsage returns an error for a changed memory limit of the pod as a whole that
// is below what its containers use together, because the kernel would kill one of
// them. Containers of which the runtime does not say what they use count as 0.
func (g *podGroup) belowUsage(ctx context.Context, config *Config, pod *v1.Pod, observed *cri.Pod) error {
	if g.resources == nil || !resourcehelper.IsPodLevelResourcesSet(pod) || equality.Semantic.DeepEqual(g.resources, pod.Spec.Resources) {
		return nil
	}
	limit := pod.Spec.Resources.Limits.Memory().Value()
	if limit <= 0 {
		return nil
	}
	var used uint64
	for _, c := range observed.Running() {
		stats, err := config.Runtime.ContainerStats(ctx, c.ID)
		if err != nil {
			klog.FromContext(ctx).V(2).Info("The memory that a container uses is not known before the resize of its pod", "container", c.Name, "err", err)
			continue
		}
		used += stats.GetMemory().GetWorkingSetBytes().GetValue()
	}
	if used >= uint64(limit) {
		return fmt.Errorf("attempting to set pod memory limit (%d) below current usage (%d)", limit, used)
	}
	return nil
}

// completeResize records that the containers have the resources of a resize in
// progress, and wakes the worker to report it.
func (w *worker) completeResize(pod *v1.Pod) {
	if done := w.inbox.takeResize(); done != nil {
		w.config.Recorder.Event(Reference(pod), v1.EventTypeNormal, "ResizeCompleted", resizeMessage("Pod resize completed", pod, done.ObservedGeneration, ""))
		w.inbox.wake()
	}
}

// resizedContainer is a container in the message of an event.
type resizedContainer struct {
	Name      string                  `json:"name"`
	Resources v1.ResourceRequirements `json:"resources"`
}

// resizeMessage returns the message of an event about a resize: what happens, the
// resources that the containers of pod have, the generation that asked for them, and why
// it failed or waits, as upstream writes them.
func resizeMessage(what string, pod *v1.Pod, generation int64, reason string) string {
	of := func(list []v1.Container) (resized []resizedContainer) {
		for i := range list {
			resized = append(resized, resizedContainer{list[i].Name, list[i].Resources})
		}
		return resized
	}
	text, err := json.Marshal(struct {
		InitContainers []resizedContainer `json:"initContainers,omitempty"`
		Containers     []resizedContainer `json:"containers,omitempty"`
		Generation     int64              `json:"generation"`
		Error          string             `json:"error,omitempty"`
	}{of(pod.Spec.InitContainers), of(pod.Spec.Containers), generation, reason})
	if err != nil {
		return what
	}
	return what + ": " + string(text)
}
