package scheduler

import (
	"context"
	"errors"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/profile"
	"github.com/coracle-io/coracle/internal/scheduler/queue"
	"github.com/coracle-io/coracle/internal/supervise"
)

// attempt is one attempt to schedule a pod.
type attempt struct {
	pod       *queue.QueuedPodInfo
	profile   *profile.Profile
	state     *framework.CycleState
	began     time.Time
	node      string // "" until it is chosen
	nominated string // the node that was reserved for the pod before the attempt
	delayed   bool   // Permit delays the pod
	prepares  bool   // something is to be done before the binding
	withdrawn bool   // the decision is taken back before others could see it
	bound     bool   // the binding is written
}

// schedule runs the scheduling cycle of a popped pod, or of all pods of its
// group that wait.
func (s *Scheduler) schedule(ctx context.Context, pod *queue.QueuedPodInfo) {
	if p := s.profiles[pod.Pod.Spec.SchedulerName]; p != nil {
		if plugin := p.DecidesTogether(pod.PodInfo); plugin != nil {
			s.scheduleGroup(ctx, pod, plugin)
			return
		}
	}
	s.scheduleOne(ctx, pod)
}

// scheduleOne runs the scheduling cycle of a popped pod and begins its binding
// cycle.
func (s *Scheduler) scheduleOne(ctx context.Context, pod *queue.QueuedPodInfo) {
	if a := s.decide(ctx, pod); a != nil {
		s.beginBinding(ctx, a)
	}
}

// decide runs the scheduling cycle of a popped pod. It returns nil if the pod
// gets no node.
func (s *Scheduler) decide(ctx context.Context, pod *queue.QueuedPodInfo) *attempt {
	a, result, err := s.try(ctx, pod, nil)
	if err != nil {
		s.fail(ctx, a, err, result)
		return nil
	}
	return a
}

// try is decide, but leaves it to the caller to end an attempt that failed. It
// returns no attempt for a pod that wants no node. reserve, if set, takes
// the preemption for the pod, to be executed later. The attempt for a pod whose resize is
// deferred always fails: the pod stays on its node.
func (s *Scheduler) try(ctx context.Context, pod *queue.QueuedPodInfo, reserve func(framework.PendingPreemption)) (a *attempt, result *framework.PostFilterResult, err error) {
	p := s.profiles[pod.Pod.Spec.SchedulerName]
	resizing := pod.IsResizing()
	if p == nil || !resizing && s.cache.HasPod(pod.Pod.UID) { // an update made before the binding under way came late
		s.queue.Done(pod.Pod.UID)
		return nil, nil, nil
	}
	klog.FromContext(ctx).V(3).Info("Attempting to schedule pod", "pod", klog.KObj(pod.Pod))
	a = &attempt{pod: pod, profile: p, state: p.NewCycleState(), began: time.Now()}
	err = supervise.Call(func() (err error) {
		snapshot := s.cache.UpdateSnapshot()
		a.nominated = s.nominator.NominatedNode(pod.Pod.UID)
		node, err := s.algorithm.schedule(ctx, p, a.state, pod.PodInfo, a.nominated, snapshot)
		s.metrics.algorithm.Observe(time.Since(a.began).Seconds())
		if err != nil {
			result = s.postFilter(ctx, a, snapshot, err, reserve)
			return err
		}
		if resizing {
			s.nominator.DeleteNominatedPod(pod.Pod.UID)
			return a.park(ctx, node.Name)
		}
		if err := s.cache.Assume(pod.PodInfo, node.Name); err != nil {
			return err
		}
		a.node = node.Name
		s.nominator.DeleteNominatedPod(pod.Pod.UID)
		return a.reserve(ctx, s.queue)
	})
	return a, result, err
}

// reserve asks the plugins whether the pod may be bound to the node that was
// chosen.
func (a *attempt) reserve(ctx context.Context, q *queue.Queue) error {
	p, pod := a.profile, a.pod.PodInfo
	if status := p.RunReservePlugins(ctx, a.state, pod, a.node); !status.IsSuccess() {
		return rejection(status)
	}
	preFlight := p.RunPreBindPreFlights(ctx, a.state, pod, a.node)
	if !preFlight.IsSuccess() && !preFlight.IsSkip() {
		return rejection(preFlight)
	}
	permit := p.RunPermitPlugins(ctx, a.state, pod, a.node)
	if !permit.IsSuccess() && !permit.IsWait() {
		return rejection(permit)
	}
	a.delayed, a.prepares = permit.IsWait(), !preFlight.IsSkip()
	if w := p.Waiting.Get(pod.Pod.UID); w != nil && !q.Expects(pod.Pod.UID) { // deleted before it waited
		w.Reject("", "removed")
	}
	return nil
}

// park returns why a pod for whose resize there is room waits in the queue: the kubelet
// has not resized it yet, and may resize another one instead.
func (a *attempt) park(ctx context.Context, node string) error {
	status := a.profile.RunPermitPlugins(ctx, a.state, a.pod.PodInfo, node)
	if status.IsSuccess() || status.IsWait() {
		return errors.New("no Permit plugin has the pod wait for its resize")
	}
	return rejection(status)
}

// isDelayed reports whether Permit still delays the pod.
func (a *attempt) isDelayed() bool {
	w := a.profile.Waiting.Get(a.pod.Pod.UID)
	return w != nil && len(w.PendingPlugins()) > 0
}

// beginBinding begins the binding cycle of a pod that has its node.
func (s *Scheduler) beginBinding(ctx context.Context, a *attempt) {
	if a.nominated != a.node {
		s.nominationEnded(a.nominated, a.pod.Pod)
	}
	if !a.delayed && !a.prepares {
		s.bindings <- struct{}{} // before the goroutine, so that decisions do not run ahead of the API
	}
	s.runAsync(ctx, a, func() { s.bindingCycle(ctx, a) })
}

// rejection is a status as an error. A status that rejects the pod becomes a
// FitError.
func rejection(status *framework.Status) error {
	if !status.IsRejected() {
		return status.AsError()
	}
	unfit := &framework.FitError{NumAllNodes: 1, Nodes: framework.NewNodeToStatus(status, 0)}
	unfit.AddPlugin(status)
	return unfit
}

// postFilter tries to make room for a pod that no node can take, and adds to err
// what came of it. With reserve, a preemption is only reserved if that is possible.
// The nomination of a pod ends after another error, and if there are no nodes.
func (s *Scheduler) postFilter(ctx context.Context, a *attempt, snapshot *framework.Snapshot, err error, reserve func(framework.PendingPreemption)) (result *framework.PostFilterResult) {
	if !s.queue.Expects(a.pod.Pod.UID) {
		return nil
	}
	var unfit *framework.FitError
	if !errors.As(err, &unfit) || unfit.NumAllNodes == 0 {
		return &framework.PostFilterResult{}
	}
	if reserve != nil || a.profile.HasPostFilterPlugins() {
		s.metrics.preemptions.Inc()
	}
	var status *framework.Status
	if reserve == nil {
		result, status = a.profile.RunPostFilterPlugins(ctx, a.state, a.pod.PodInfo, snapshot, unfit.Nodes)
	} else {
		var pending framework.PendingPreemption
		if pending, result, status = a.profile.RunPodGroupPostFilterPlugins(ctx, a.state, a.pod.PodInfo, snapshot, unfit.Nodes); pending != nil {
			reserve(pending)
		}
	}
	if status.IsRejected() || status.IsSuccess() {
		unfit.PostFilterMsg = status.Message()
	} else {
		klog.FromContext(ctx).Error(status.AsError(), "Making room for a pod failed", "pod", klog.KObj(a.pod.Pod))
	}
	return result
}

// bindingCycle writes a decision. If the attempt waits for nothing, the caller
// has taken its place among the bindings already.
func (s *Scheduler) bindingCycle(ctx context.Context, a *attempt) {
	running := s.metrics.goroutines.WithLabelValues("binding")
	running.Inc()
	defer running.Dec()
	if a.delayed || a.prepares {
		if s.writer.nominatesDecided && (a.prepares || a.isDelayed()) { // others see where it goes, and after a restart it is tried there first (KEP-5278)
			s.writer.writeNominated(ctx, a.pod.Pod, nil, func() string { return a.node })
		}
		status := a.profile.WaitOnPermit(ctx, a.pod.PodInfo)
		if status.IsSuccess() {
			status = a.profile.RunPreBindPlugins(ctx, a.state, a.pod.PodInfo, a.node)
		}
		if !status.IsSuccess() {
			s.fail(ctx, a, rejection(status), nil)
			return
		}
		s.bindings <- struct{}{}
	}
	defer func() { <-s.bindings }()
	select {
	case <-s.statuses.settled(a.pod.Pod.UID): // what an earlier attempt writes must not come after the binding
	case <-ctx.Done():
	}
	if status := a.profile.RunBindPlugins(ctx, a.state, a.pod.PodInfo, a.node); !status.IsSuccess() {
		s.fail(ctx, a, rejection(status), nil)
		return
	}
	s.bound(ctx, a)
}

// bound finishes the attempt after a binding, by which the API server has
// ended the pod's nomination.
func (s *Scheduler) bound(ctx context.Context, a *attempt) {
	pod := a.pod.Pod
	a.bound = true
	s.queue.Done(pod.UID)
	s.metrics.attempted(scheduled, a.profile.Name, time.Since(a.began))
	s.metrics.placed(a.pod.Attempts, s.clock.Since(a.pod.InitialAttemptTimestamp), a.pod.Flushed)
	klog.FromContext(ctx).V(2).Info("Bound pod", "pod", klog.KObj(pod), "node", a.node, "attempts", a.pod.Attempts)
	s.recorders[a.profile.Name].Eventf(pod, nil, v1.EventTypeNormal, "Scheduled", "Binding", "Successfully assigned %v/%v to %v", pod.Namespace, pod.Name, a.node)
	a.profile.RunPostBindPlugins(ctx, a.state, a.pod.PodInfo, a.node)
}

// fail ends an attempt that did not bind the pod: it undoes what was assumed,
// puts the pod back into the queue and says why in an event and a condition.
// result is of PostFilter, nil if the nomination is to stay as it is.
func (s *Scheduler) fail(ctx context.Context, a *attempt, err error, result *framework.PostFilterResult) {
	pod := a.pod.Pod
	if a.node != "" {
		a.profile.RunUnreservePlugins(ctx, a.state, a.pod.PodInfo, a.node)
		s.cache.Forget(pod.UID)
		if !a.withdrawn {
			s.queue.MoveAllToActiveOrBackoffQueue(framework.ClusterEvent{Resource: framework.AssignedPod, Action: framework.Delete}, pod, nil)
		}
	}
	if ctx.Err() != nil {
		s.queue.Done(pod.UID)
		return
	}
	s.renominate(a, result)
	var unfit *framework.FitError
	if errors.As(err, &unfit) {
		s.metrics.attempted(unschedulable, a.profile.Name, time.Since(a.began))
		a.pod.UnschedulablePlugins, a.pod.PendingPlugins = unfit.UnschedulablePlugins, unfit.PendingPlugins
		if unfit.NumAllNodes == 0 {
			a.pod.UnschedulablePlugins = []string{noNodes}
		}
		if result != nil && result.Plugin != "" { // its room may go to another pod
			a.pod.UnschedulablePlugins = append(slices.Clone(a.pod.UnschedulablePlugins), result.Plugin)
		}
	} else {
		supervise.RecordPanic(ctx, err)
		s.metrics.attempted(failed, a.profile.Name, time.Since(a.began))
		a.pod.UnschedulablePlugins, a.pod.PendingPlugins = nil, nil
		klog.FromContext(ctx).Error(err, "Scheduling failed", "pod", klog.KObj(pod), "node", a.node)
	}
	uid, resizing := pod.UID, a.pod.IsResizing()
	s.queue.AddUnschedulable(a.pod) // the attempt must not touch a.pod from here on
	if !s.queue.Has(uid) {
		s.leaveGroup(pod)
		return // the pod is gone, or another scheduler has bound it
	}
	message := err.Error() // counts the reasons of all nodes
	if resizing {
		// Its status says already that the resize is deferred.
		klog.FromContext(ctx).V(3).Info("Pod waits for its resize", "pod", klog.KObj(pod), "reason", message)
		return
	}
	klog.FromContext(ctx).V(3).Info("Pod was not scheduled", "pod", klog.KObj(pod), "reason", message)
	s.recorders[a.profile.Name].Eventf(pod, nil, v1.EventTypeWarning, "FailedScheduling", "Scheduling", "%s", truncateMessage(message))
	s.writer.report(ctx, pod, failedCondition(pod, unfit != nil, message))
}

// renominate brings the nomination of a pod in line with the result of PostFilter. That of
// a pod that runs on its node means that a preemption for it is under way.
func (s *Scheduler) renominate(a *attempt, result *framework.PostFilterResult) {
	pod := a.pod.Pod
	if a.pod.IsResizing() {
		if result != nil && !result.KeepsNomination && result.NominatedNodeName == "" || !s.queue.Expects(pod.UID) {
			s.nominator.DeleteNominatedPod(pod.UID)
		}
		return
	}
	if a.node == "" && s.nominator.NominatedNode(pod.UID) != a.nominated { // PostFilter chose another node
		s.nominationEnded(a.nominated, pod)
	}
	if result != nil && !result.KeepsNomination {
		s.nominate(a.pod.PodInfo, result.NominatedNodeName)
	}
}

// nominate reserves room on a node for a pod in flight; "" ends that.
func (s *Scheduler) nominate(pod *framework.PodInfo, node string) {
	uid := pod.Pod.UID
	if node == "" {
		s.endNomination(uid, pod.Pod)
		return
	}
	s.nominator.AddNominatedPod(pod, node)
	if !s.queue.Expects(uid) { // deleted during the attempt
		s.nominator.DeleteNominatedPod(uid)
	}
}

// endNomination gives back the room that is reserved for a pod, if any, and
// tells the queue that others may have it.
func (s *Scheduler) endNomination(uid types.UID, pod *v1.Pod) {
	if s.nominator.NominatedNode(uid) == "" {
		return
	}
	s.nominator.DeleteNominatedPod(uid)
	s.event(framework.AssignedPod, framework.Delete, pod, nil)
}

// nominationEnded tells the queue that others may have the room on a node that was
// reserved for a pod. node is "" if there was none.
func (s *Scheduler) nominationEnded(node string, pod *v1.Pod) {
	if node != "" {
		s.event(framework.AssignedPod, framework.Delete, pod, nil)
	}
}
