// Package podgroupprotection keeps PodGroups from being deleted while pods that
// have not ended name them (KEP-4671). It adds a finalizer to a group with such
// pods, and removes it from a group that is being deleted once there are none.
package podgroupprotection

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	schedulingapi "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/podquery"
)

// finalizer of groups in use.
const finalizer = "scheduling.k8s.io/podgroup-protection"

// byGroup is the index of pods by their group.
const byGroup = "podGroup"

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Name:           "podgroup-protection-controller",
		ServiceAccount: "podgroup-protection-controller",
		EventSource:    "podgroup-protection-controller",
		New: func(env *controller.Env) (controller.Controller, error) {
			return controller.Func(func(ctx context.Context) error { return run(ctx, env) }), nil
		},
	}
}

// run does nothing where PodGroups are not served.
func run(ctx context.Context, env *controller.Env) error {
	if served, err := env.WaitUnlessServed(ctx, schedulingapi.SchemeGroupVersion.WithResource("podgroups")); !served {
		return err
	}
	pods, groups := env.Client.Informers.Core().V1().Pods().Informer(), env.Client.Informers.Scheduling().V1beta1().PodGroups().Informer()
	if err := env.Index(pods, byGroup, groupKeys); err != nil {
		return err
	}
	queue := controller.NewQueue(env.Queues, "podgroupprotection", controller.Existing[controller.Key](groups, func(ctx context.Context, group *schedulingapi.PodGroup) error {
		return protect(ctx, env, pods.GetIndexer(), group)
	}))
	return controller.Serve(ctx, []controller.Source{
		controller.On(groups, func(_, group *schedulingapi.PodGroup) {
			if group != nil {
				queue.Add(cache.MetaObjectToName(group))
			}
		}),
		controller.On(pods, func(old, pod *v1.Pod) {
			if old != nil && pod != nil && podquery.IsFinished(old) == podquery.IsFinished(pod) {
				return
			}
			for _, p := range []*v1.Pod{old, pod} {
				if p == nil {
					continue
				}
				if name := groupOf(p); name != "" {
					queue.Add(controller.Key{Namespace: p.Namespace, Name: name})
				}
			}
		}),
	}, queue.Workers(1))
}

func groupOf(pod *v1.Pod) string {
	if g := pod.Spec.SchedulingGroup; g != nil && g.PodGroupName != nil {
		return *g.PodGroupName
	}
	return ""
}

func groupKeys(obj any) ([]string, error) {
	if pod, ok := obj.(*v1.Pod); ok && groupOf(pod) != "" {
		return []string{pod.Namespace + "/" + groupOf(pod)}, nil
	}
	return nil, nil
}

// protect adds or removes the finalizer of a group.
func protect(ctx context.Context, env *controller.Env, pods cache.Indexer, group *schedulingapi.PodGroup) error {
	held, going := slices.Contains(group.Finalizers, finalizer), group.DeletionTimestamp != nil
	if held != going { // there is nothing to add or to remove
		return nil
	}
	users, err := pods.ByIndex(byGroup, group.Namespace+"/"+group.Name)
	if err != nil {
		return err
	}
	used := slices.ContainsFunc(users, func(obj any) bool { pod, ok := obj.(*v1.Pod); return ok && !podquery.IsFinished(pod) })
	if used == going {
		return nil
	}
	next := group.DeepCopy()
	if going {
		next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == finalizer })
	} else {
		next.Finalizers = append(next.Finalizers, finalizer)
	}
	_, err = env.Client.Kubernetes.SchedulingV1beta1().PodGroups(group.Namespace).Update(ctx, next, metav1.UpdateOptions{})
	return controller.IgnoreNotFound(err)
}
