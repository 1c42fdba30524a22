// Package podselector finds the pods that belong together with a pod: the pods
// of its services and of its controller.
package podselector

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
)

// New returns a function that merges the selectors of the services and of the
// controller of a pod. The function returns nil if there are none.
func New(f informers.SharedInformerFactory) func(*v1.Pod) labels.Selector {
	services := f.Core().V1().Services().Lister()
	controllers := f.Core().V1().ReplicationControllers().Lister()
	replicaSets := f.Apps().V1().ReplicaSets().Lister()
	statefulSets := f.Apps().V1().StatefulSets().Lister()
	return func(pod *v1.Pod) labels.Selector {
		merged := labels.Set{}
		if list, err := services.Services(pod.Namespace).List(labels.Everything()); err == nil {
			for _, svc := range list {
				if len(svc.Spec.Selector) > 0 && selects(svc.Spec.Selector, pod.Labels) {
					merged = labels.Merge(merged, svc.Spec.Selector)
				}
			}
		}
		selector := labels.NewSelector()
		if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
			var of *metav1.LabelSelector
			switch owner.Kind {
			case "ReplicationController":
				if rc, err := controllers.ReplicationControllers(pod.Namespace).Get(owner.Name); err == nil {
					merged = labels.Merge(merged, rc.Spec.Selector)
				}
			case "ReplicaSet":
				if rs, err := replicaSets.ReplicaSets(pod.Namespace).Get(owner.Name); err == nil {
					of = rs.Spec.Selector
				}
			case "StatefulSet":
				if ss, err := statefulSets.StatefulSets(pod.Namespace).Get(owner.Name); err == nil {
					of = ss.Spec.Selector
				}
			}
			if of != nil {
				if parsed, err := metav1.LabelSelectorAsSelector(of); err == nil {
					if r, selectable := parsed.Requirements(); selectable {
						selector = selector.Add(r...)
					}
				}
			}
		}
		if r, selectable := labels.SelectorFromSet(merged).Requirements(); selectable {
			selector = selector.Add(r...)
		}
		if selector.Empty() {
			return nil
		}
		return selector
	}
}

// selects reports whether a pod has all labels of a service's selector. It is asked for
// each service of a namespace in each decision.
func selects(selector, podLabels map[string]string) bool {
	for key, want := range selector {
		if value, ok := podLabels[key]; !ok || value != want {
			return false
		}
	}
	return true
}
