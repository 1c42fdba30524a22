package pods

import (
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	endpointsliceutil "k8s.io/endpointslice/util"

	"github.com/coracle-io/coracle/internal/controller"
)

// IndexServices adds the indexes that ServiceSources and Selected need.
func IndexServices(env *controller.Env) error {
	core := env.Client.Informers.Core().V1()
	return errors.Join(env.Index(core.Services().Informer(), BySelector, serviceKeys), env.Index(core.Pods().Informer(), ByLabel, LabelKeys))
}

// serviceKeys is the index function of BySelector for Services. One without a selector
// selects no pods.
func serviceKeys(o any) ([]string, error) {
	s, ok := o.(*v1.Service)
	if !ok {
		return nil, fmt.Errorf("cannot index a %T by its selector", o)
	}
	if s.Spec.Selector == nil {
		return nil, nil
	}
	return SelectorKeys(s.Namespace, SelectorOf(s)), nil
}

// SelectorOf returns the selector of a Service that has one. It copies and sorts nothing: a
// Service may select by a hundred thousand labels, and is asked with each change of a pod.
func SelectorOf(s *v1.Service) labels.Selector { return labels.ValidatedSetSelector(s.Spec.Selector) }

// ServiceSources returns sources that enqueue each Service that changes, and the
// Services whose endpoints may change with a pod. batch is how long changes of
// pods wait, to be written together with those that follow. The informers must have
// the indexes of IndexServices.
func ServiceSources(env *controller.Env, queue *controller.Queue[controller.Key], batch time.Duration) []controller.Source {
	core := env.Client.Informers.Core().V1()
	services := core.Services().Informer()
	return []controller.Source{
		controller.On(services, func(old, new *v1.Service) {
			if new == nil {
				new = old
			}
			queue.Add(cache.MetaObjectToName(new))
		}),
		controller.On(core.Pods().Informer(), func(old, new *v1.Pod) {
			for service := range servicesOf(services, old, new) {
				queue.AddAfter(service, batch)
			}
		}),
	}
}

// servicesOf returns the keys of the Services whose endpoints may change when a
// pod changes from old to new. old is nil for an added pod, new is nil for a
// deleted one.
func servicesOf(services cache.SharedIndexInformer, old, new *v1.Pod) sets.Set[controller.Key] {
	var projection *endpointsliceutil.PodProjectionKey
	switch {
	case old == nil:
		projection = endpointsliceutil.GetPodUpdateProjectionKey(nil, new)
	case new == nil:
		projection = endpointsliceutil.GetPodUpdateProjectionKey(nil, old)
	default:
		projection = endpointsliceutil.GetPodUpdateProjectionKey(old, new)
	}
	if projection == nil {
		return nil
	}
	now := servicesFor(services, projection.Namespace, projection.Labels)
	if projection.OldLabels == nil {
		return now
	}
	before := servicesFor(services, projection.Namespace, projection.OldLabels)
	if projection.PodChanged {
		return now.Union(before)
	}
	return now.SymmetricDifference(before) // the others keep the pod as it is
}

// servicesFor returns the keys of the Services that select pods with these labels.
func servicesFor(services cache.SharedIndexInformer, namespace string, podLabels labels.Set) sets.Set[controller.Key] {
	found := sets.Set[controller.Key]{}
	candidates, err := MaySelect[*v1.Service](services, namespace, podLabels)
	if err != nil {
		return found
	}
	for _, s := range candidates {
		if s.Spec.Selector != nil && SelectorOf(s).Matches(podLabels) {
			found.Insert(cache.MetaObjectToName(s))
		}
	}
	return found
}
