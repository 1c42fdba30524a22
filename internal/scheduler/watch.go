package scheduler

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/interpodaffinity"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/nodeports"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/noderesources"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/podtopologyspread"
)

// anyNode stands among the plugins of every pod that fits nowhere: what
// changes about nodes may help any of them.
const anyNode = "node"

// Which refusals an event can lift.
var (
	podGone  = []string{noderesources.FitName, nodeports.Name, interpodaffinity.Name, podtopologyspread.Name}
	podThere = []string{interpodaffinity.Name, podtopologyspread.Name}
)

// watch fills cache and queue and keeps them current; it returns once both
// are filled.
func (s *Scheduler) watch(ctx context.Context) error {
	pods := v1.SchemeGroupVersion.WithResource("pods")
	unassigned := s.client.Watch(pods, "", fields.ParseSelectorOrDie("spec.nodeName=,status.phase!=Succeeded,status.phase!=Failed"))
	assigned := s.client.Watch(pods, "", fields.ParseSelectorOrDie("spec.nodeName!="))
	nodes := s.client.Informers.Core().V1().Nodes().Informer()
	namespaces := s.client.Informers.Core().V1().Namespaces().Informer()

	synced := []cache.DoneChecker{}
	for _, w := range []struct {
		subscribe func(context.Context, cache.SharedIndexInformer, cache.ResourceEventHandler) (cache.DoneChecker, error)
		informer  cache.SharedIndexInformer
		handler   cache.ResourceEventHandler
	}{
		{client.Subscribe, nodes, s.nodeHandler()}, {client.Subscribe, namespaces, s.namespaceHandler()},
		{client.Follow, assigned, s.assignedHandler()}, {client.Follow, unassigned, s.unassignedHandler()},
	} {
		heard, err := w.subscribe(ctx, w.informer, w.handler)
		if err != nil {
			return err
		}
		synced = append(synced, heard)
	}
	if !cache.WaitFor(ctx, "", synced...) {
		return errors.Join(ctx.Err(), errors.New("ended before nodes and pods were known"))
	}
	return nil
}

func (s *Scheduler) unassignedHandler() cache.ResourceEventHandler {
	take := func(obj any) {
		pod := obj.(*v1.Pod)
		s.gate(pod, len(pod.Spec.SchedulingGates) > 0 && pod.Spec.SchedulerName == s.name)
		if pod.Spec.SchedulerName == s.name && len(pod.Spec.SchedulingGates) == 0 && pod.DeletionTimestamp == nil {
			s.queue.set(pod)
		} else {
			s.queue.delete(pod.UID)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    take,
		UpdateFunc: func(_, obj any) { take(obj) },
		DeleteFunc: func(obj any) {
			if pod, ok := last(obj).(*v1.Pod); ok {
				s.gate(pod, false)
				s.queue.delete(pod.UID)
			}
		},
	}
}

// gate notes whether a pod waits for its scheduling gates.
func (s *Scheduler) gate(pod *v1.Pod, waits bool) {
	if waits {
		s.gated.Store(pod.UID, true)
	} else {
		s.gated.Delete(pod.UID)
	}
}

func (s *Scheduler) assignedHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			s.cache.setPod(obj.(*v1.Pod))
			s.queue.move("AssignedPodAdd", podThere)
		},
		UpdateFunc: func(old, obj any) {
			before, pod := old.(*v1.Pod), obj.(*v1.Pod)
			if before.UID != pod.UID {
				s.cache.deletePod(before.UID)
			}
			s.cache.setPod(pod)
			switch {
			case pod.Status.Phase != before.Status.Phase, pod.Generation != before.Generation:
				s.queue.move("AssignedPodUpdate", podGone)
			case !mapsEqual(before.Labels, pod.Labels), before.DeletionTimestamp == nil && pod.DeletionTimestamp != nil:
				s.queue.move("AssignedPodUpdate", podThere)
			}
		},
		DeleteFunc: func(obj any) {
			if pod, ok := last(obj).(*v1.Pod); ok {
				s.cache.deletePod(pod.UID)
				s.queue.move("AssignedPodDelete", podGone)
			}
		},
	}
}

func (s *Scheduler) nodeHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			s.cache.setNode(obj.(*v1.Node))
			s.queue.move("NodeAdd", nil)
		},
		UpdateFunc: func(old, obj any) {
			before, node := old.(*v1.Node), obj.(*v1.Node)
			s.cache.setNode(node)
			if !mapsEqual(before.Labels, node.Labels) || before.Spec.Unschedulable != node.Spec.Unschedulable ||
				!equality.Semantic.DeepEqual(before.Spec.Taints, node.Spec.Taints) ||
				!equality.Semantic.DeepEqual(before.Status.Allocatable, node.Status.Allocatable) {
				s.queue.move("NodeUpdate", []string{anyNode})
			}
		},
		DeleteFunc: func(obj any) {
			if node, ok := last(obj).(*v1.Node); ok {
				s.cache.deleteNode(node.Name)
				s.queue.move("NodeDelete", podThere)
			}
		},
	}
}

func (s *Scheduler) namespaceHandler() cache.ResourceEventHandler {
	take := func(obj any) {
		ns := obj.(*v1.Namespace)
		s.cache.setNamespace(ns.Name, ns.Labels)
		s.queue.move("NamespaceUpdate", podThere)
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    take,
		UpdateFunc: func(_, obj any) { take(obj) },
		DeleteFunc: func(obj any) {
			if ns, ok := last(obj).(*v1.Namespace); ok {
				s.cache.deleteNamespace(ns.Name)
			}
		},
	}
}

// last unwraps the last known state of an object whose deletion was missed.
func last(obj any) any {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		return unknown.Obj
	}
	return obj
}
