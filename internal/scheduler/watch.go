package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/profile"
	"github.com/coracle-io/coracle/internal/scheduler/queue"
)

// noNodes stands for a plugin that rejects every pod while there are no nodes.
const noNodes = "NoNodes"

// watch fills cache and queue and keeps them current; it returns once both are
// filled. It subscribes to pods, nodes, namespaces, and the resources for whose
// events plugins have registered. It waits for no resource that is not served.
func (s *Scheduler) watch(ctx context.Context) error {
	pods := v1.SchemeGroupVersion.WithResource("pods")
	unassigned := s.client.Watch(pods, "", fields.ParseSelectorOrDie("spec.nodeName=,status.phase!=Succeeded,status.phase!=Failed"))
	assigned := s.client.Watch(pods, "", fields.ParseSelectorOrDie("spec.nodeName!="))
	type watched struct {
		subscribe func(context.Context, cache.SharedIndexInformer, cache.ResourceEventHandler) (cache.DoneChecker, error)
		informer  cache.SharedIndexInformer
		handler   cache.ResourceEventHandler
		resource  schema.GroupVersionResource
	}
	core, apps, policy := s.client.Informers.Core().V1(), s.client.Informers.Apps().V1(), s.client.Informers.Policy().V1()
	all := []watched{
		{client.Subscribe, core.Nodes().Informer(), s.nodeHandler(), v1.SchemeGroupVersion.WithResource("nodes")},
		{client.Subscribe, core.Namespaces().Informer(), s.namespaceHandler(), v1.SchemeGroupVersion.WithResource("namespaces")},
		{client.Follow, assigned, s.assignedHandler(), pods},
	}
	for _, resource := range s.registeredResources() {
		informer, gvr := informerOf(s.client.Informers, resource)
		if informer == nil {
			return fmt.Errorf("a plugin registered events on %s, which the scheduler cannot watch", resource)
		}
		all = append(all, watched{client.Subscribe, informer, s.objectHandler(resource), gvr})
	}
	all = append(all, watched{client.Follow, unassigned, s.unassignedHandler(), pods})
	awaited := make([]client.PendingSync, 0, len(all))
	for _, w := range all {
		done, err := w.subscribe(ctx, w.informer, w.handler)
		if err != nil {
			return err
		}
		awaited = append(awaited, client.PendingSync{Resource: w.resource, Synced: done})
	}
	// Plugins read these through listers, without waiting for events on them.
	for _, read := range []watched{
		{informer: core.Services().Informer(), resource: v1.SchemeGroupVersion.WithResource("services")},
		{informer: core.ReplicationControllers().Informer(), resource: v1.SchemeGroupVersion.WithResource("replicationcontrollers")},
		{informer: apps.ReplicaSets().Informer(), resource: appsv1.SchemeGroupVersion.WithResource("replicasets")},
		{informer: apps.StatefulSets().Informer(), resource: appsv1.SchemeGroupVersion.WithResource("statefulsets")},
		{informer: policy.PodDisruptionBudgets().Informer(), resource: policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets")},
	} {
		awaited = append(awaited, client.PendingSync{Resource: read.resource, Synced: read.informer.HasSyncedChecker()})
	}
	unserved, err := client.WaitServed(ctx, s.client.Kubernetes.Discovery(), awaited...)
	if err != nil {
		return errors.Join(err, errors.New("ended before nodes and pods were known"))
	}
	for _, resource := range unserved {
		klog.FromContext(ctx).Info("Not served by the API server: pods that need it are not scheduled", "resource", resource.String())
	}
	return nil
}

// registeredResources are those that plugins registered events on and that
// have no handler of their own.
func (s *Scheduler) registeredResources() []framework.EventResource {
	seen := map[framework.EventResource]bool{
		framework.AssignedPod: true, framework.TargetPod: true, framework.UnscheduledPod: true,
		framework.Node: true, framework.Namespace: true, framework.WildCard: true,
	}
	var out []framework.EventResource
	for _, events := range s.events {
		for _, e := range events {
			if !seen[e.Event.Resource] {
				seen[e.Event.Resource] = true
				out = append(out, e.Event.Resource)
			}
		}
	}
	return out
}

// informerOf returns the shared informer of a resource, or nil.
func informerOf(f informers.SharedInformerFactory, resource framework.EventResource) (cache.SharedIndexInformer, schema.GroupVersionResource) {
	switch resource {
	case framework.PersistentVolume:
		return f.Core().V1().PersistentVolumes().Informer(), v1.SchemeGroupVersion.WithResource("persistentvolumes")
	case framework.PersistentVolumeClaim:
		return f.Core().V1().PersistentVolumeClaims().Informer(), v1.SchemeGroupVersion.WithResource("persistentvolumeclaims")
	case framework.Service:
		return f.Core().V1().Services().Informer(), v1.SchemeGroupVersion.WithResource("services")
	case framework.ReplicaSet:
		return f.Apps().V1().ReplicaSets().Informer(), appsv1.SchemeGroupVersion.WithResource("replicasets")
	case framework.StatefulSet:
		return f.Apps().V1().StatefulSets().Informer(), appsv1.SchemeGroupVersion.WithResource("statefulsets")
	case framework.StorageClass:
		return f.Storage().V1().StorageClasses().Informer(), storagev1.SchemeGroupVersion.WithResource("storageclasses")
	case framework.CSINode:
		return f.Storage().V1().CSINodes().Informer(), storagev1.SchemeGroupVersion.WithResource("csinodes")
	case framework.CSIDriver:
		return f.Storage().V1().CSIDrivers().Informer(), storagev1.SchemeGroupVersion.WithResource("csidrivers")
	case framework.CSIStorageCapacity:
		return f.Storage().V1().CSIStorageCapacities().Informer(), storagev1.SchemeGroupVersion.WithResource("csistoragecapacities")
	case framework.VolumeAttachment:
		return f.Storage().V1().VolumeAttachments().Informer(), storagev1.SchemeGroupVersion.WithResource("volumeattachments")
	case framework.ResourceClaim:
		return f.Resource().V1().ResourceClaims().Informer(), resourcev1.SchemeGroupVersion.WithResource("resourceclaims")
	case framework.ResourceSlice:
		return f.Resource().V1().ResourceSlices().Informer(), resourcev1.SchemeGroupVersion.WithResource("resourceslices")
	case framework.DeviceClass:
		return f.Resource().V1().DeviceClasses().Informer(), resourcev1.SchemeGroupVersion.WithResource("deviceclasses")
	case framework.PodGroup:
		return f.Scheduling().V1beta1().PodGroups().Informer(), schedulingv1beta1.SchemeGroupVersion.WithResource("podgroups")
	case framework.DeviceTaintRule:
		return f.Resource().V1().DeviceTaintRules().Informer(), resourcev1.SchemeGroupVersion.WithResource("devicetaintrules")
	}
	return nil, schema.GroupVersionResource{}
}

// event tells the queue of a change.
func (s *Scheduler) event(resource framework.EventResource, action framework.ActionType, old, new any) {
	s.move(framework.ClusterEvent{Resource: resource, Action: action}, old, new)
}

func (s *Scheduler) move(e framework.ClusterEvent, old, new any) {
	began := time.Now()
	s.queue.MoveAllToActiveOrBackoffQueue(e, old, new)
	s.metrics.handling.WithLabelValues(e.Name()).Observe(time.Since(began).Seconds())
}

// handler returns the handler of a resource: it keeps what the scheduler holds
// of it current by set and remove, and tells the queue of additions, deletions
// and what changes returns.
func handler[T any](s *Scheduler, resource framework.EventResource, set, remove func(T), changes func(old, new T) []framework.ClusterEvent) cache.ResourceEventHandler {
	return client.Handler(
		func(obj T) {
			set(obj)
			s.event(resource, framework.Add, nil, obj)
		},
		func(old, obj T) {
			set(obj)
			for _, e := range changes(old, obj) {
				s.move(e, old, obj)
			}
		},
		func(obj T) {
			remove(obj)
			s.event(resource, framework.Delete, obj, nil)
		},
	)
}

func (s *Scheduler) nodeHandler() cache.ResourceEventHandler {
	return handler(s, framework.Node, s.cache.SetNode, func(node *v1.Node) { s.cache.DeleteNode(node.Name) }, queue.NodeEvents)
}

func (s *Scheduler) namespaceHandler() cache.ResourceEventHandler {
	return handler(s, framework.Namespace,
		func(ns *v1.Namespace) { s.cache.SetNamespace(ns.Name, ns.Labels) },
		func(ns *v1.Namespace) { s.cache.DeleteNamespace(ns.Name) },
		func(old, ns *v1.Namespace) []framework.ClusterEvent {
			if maps.Equal(old.Labels, ns.Labels) {
				return nil
			}
			return []framework.ClusterEvent{{Resource: framework.Namespace, Action: framework.UpdateOther}}
		})
}

// objectHandler handles events of resources that the scheduler itself does not cache.
func (s *Scheduler) objectHandler(resource framework.EventResource) cache.ResourceEventHandler {
	keep := func(any) {}
	return handler(s, resource, keep, keep, func(_, _ any) []framework.ClusterEvent {
		return []framework.ClusterEvent{{Resource: resource, Action: framework.UpdateOther}}
	})
}

// podHandler returns the handler of pods, as the feature gates show them.
func (s *Scheduler) podHandler(add func(*v1.Pod), update func(old, pod *v1.Pod), remove func(*v1.Pod)) cache.ResourceEventHandler {
	visible := func(pod *v1.Pod) *v1.Pod { return framework.Visible(pod, s.features) }
	return client.Handler(
		func(pod *v1.Pod) { add(visible(pod)) },
		func(old, pod *v1.Pod) { update(visible(old), visible(pod)) },
		func(pod *v1.Pod) { remove(visible(pod)) },
	)
}

func (s *Scheduler) unassignedHandler() cache.ResourceEventHandler {
	return s.podHandler(func(pod *v1.Pod) { s.setUnassigned(nil, pod) }, s.setUnassigned, s.deleteUnassigned)
}

// setUnassigned takes a pod without node. Pods of other schedulers, and pods
// that are being deleted, are left alone.
func (s *Scheduler) setUnassigned(old, pod *v1.Pod) {
	if old != nil && old.UID != pod.UID {
		s.deleteUnassigned(old)
		old = nil
	}
	if s.profiles[pod.Spec.SchedulerName] == nil {
		return
	}
	if pod.DeletionTimestamp != nil {
		s.deleteUnassigned(pod)
		return
	}
	before := ""
	if old != nil {
		before = old.Status.NominatedNodeName
		if s.nominator.NominatedNode(pod.UID) != "" && len(queue.PodEvents(framework.TargetPod, old, pod)) > 0 {
			s.nominator.Update(framework.NewPodInfo(pod))
		}
	}
	if now := pod.Status.NominatedNodeName; now != before && !s.statuses.observe(pod) {
		if now == "" {
			s.endNomination(pod.UID, pod)
		} else if !s.cache.HasPod(pod.UID) {
			previous := s.nominator.NominatedNode(pod.UID)
			s.nominator.AddNominatedPod(framework.NewPodInfo(pod), now)
			if previous != now {
				s.nominationEnded(previous, pod)
			}
		}
	}
	s.groups.Set(pod)
	s.queue.Add(pod)
	if old == nil {
		s.event(framework.UnscheduledPod, framework.Add, nil, pod)
	}
}

// deleteUnassigned forgets a pod that is gone or has a node now. The room that
// it was nominated for is free for others.
func (s *Scheduler) deleteUnassigned(pod *v1.Pod) {
	p := s.profiles[pod.Spec.SchedulerName]
	if p == nil {
		return
	}
	s.queue.DeleteUnassigned(pod.UID)
	s.leaveGroup(pod)
	nominated := s.nominator.NominatedNode(pod.UID) != ""
	s.nominator.DeleteNominatedPod(pod.UID)
	s.statuses.forget(pod.UID)
	if w := p.Waiting.Get(pod.UID); w != nil {
		w.Reject("", "removed")
	}
	if nominated {
		s.event(framework.AssignedPod, framework.Delete, pod, nil)
	}
}

// setAssigned takes a pod on a node. A pod that has ended leaves its group.
func (s *Scheduler) setAssigned(pod *v1.Pod) {
	s.cache.SetPod(pod)
	if podquery.IsFinished(pod) {
		s.groups.Delete(pod)
	} else {
		s.groups.Set(pod)
	}
}

// leaveGroup forgets that a pod belongs to its group, unless it is on a node or
// assumed to be.
func (s *Scheduler) leaveGroup(pod *v1.Pod) {
	if !s.cache.HasPod(pod.UID) {
		s.groups.Delete(pod)
	}
}

func (s *Scheduler) assignedHandler() cache.ResourceEventHandler {
	return s.podHandler(s.addAssigned, s.updateAssigned, s.deleteAssigned)
}

// setResizing takes a pod on a node into the queue while the kubelet defers its resize,
// so that room is made for it, and removes it once that has ended.
func (s *Scheduler) setResizing(old, pod *v1.Pod) {
	switch p := s.profiles[pod.Spec.SchedulerName]; {
	case makesRoom(p, pod):
		s.queue.Add(pod)
	case old != nil && makesRoom(p, old):
		s.forgetResize(pod)
	}
}

// makesRoom reports whether a profile, nil if it is another scheduler's, makes room for
// the resize of a pod on a node.
func makesRoom(p *profile.Profile, pod *v1.Pod) bool {
	return p != nil && p.HandlesDeferredResizes() && pod.DeletionTimestamp == nil && !podquery.IsFinished(pod) && resourcehelper.IsPodResizeDeferred(pod)
}

// forgetResize ends the attempts to make room for a pod on a node, if there are any.
func (s *Scheduler) forgetResize(pod *v1.Pod) {
	if p := s.profiles[pod.Spec.SchedulerName]; p == nil || !p.HandlesDeferredResizes() {
		return
	}
	s.queue.Delete(pod.UID)
	s.nominator.DeleteNominatedPod(pod.UID)
	s.statuses.forget(pod.UID)
}

func (s *Scheduler) addAssigned(pod *v1.Pod) {
	s.setAssigned(pod)
	s.setResizing(nil, pod)
	if podquery.IsFinished(pod) { // it may have been assumed, or seen on its node by nobody
		s.event(framework.AssignedPod, framework.Delete, pod, nil)
		return
	}
	s.event(framework.AssignedPod, framework.Add, nil, pod)
}

func (s *Scheduler) updateAssigned(old, pod *v1.Pod) {
	if old.UID != pod.UID {
		s.deleteAssigned(old)
		s.addAssigned(pod)
		return
	}
	s.setAssigned(pod)
	s.setResizing(old, pod)
	if podquery.IsFinished(pod) && !podquery.IsFinished(old) {
		s.event(framework.AssignedPod, framework.Delete, old, nil)
		return
	}
	for _, e := range queue.PodEvents(framework.AssignedPod, old, pod) {
		s.move(e, old, pod)
	}
}

func (s *Scheduler) deleteAssigned(pod *v1.Pod) {
	s.cache.DeletePod(pod.UID)
	s.forgetResize(pod)
	s.groups.Delete(pod)
	s.event(framework.AssignedPod, framework.Delete, pod, nil)
}
