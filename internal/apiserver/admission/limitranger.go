package admission

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/coracle-io/coracle/internal/apiserver/errorlist"
	"github.com/coracle-io/coracle/internal/apiserver/objects"
)

const limitRangerAnnotation = "kubernetes.io/limit-ranger"

// limitRanger sets default resources of containers and enforces the limits of
// the namespace for containers, pods and claims.
type limitRanger struct {
	onWrite
	ranges objects.Reader[*corev1.LimitRange]
}

func newLimitRanger(c *Config) admission.Interface {
	return limitRanger{ranges: objects.Of[*corev1.LimitRange](c.Objects, objects.LimitRanges)}
}

func (p limitRanger) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || !is(a, "", "pods", "") || a.GetOperation() != admission.Create {
		return nil
	}
	for r := range p.ranges.All(a.GetNamespace()) {
		defaultResources(pod, r)
	}
	return nil
}

func (p limitRanger) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	// A limit must not keep an object from losing its finalizers.
	if old, ok := a.GetOldObject().(metav1.Object); ok && old.GetDeletionTimestamp() != nil {
		return nil
	}
	var check func(*corev1.LimitRange) []error
	switch o := a.GetObject().(type) {
	case *corev1.Pod:
		created := is(a, "", "pods", "") && a.GetOperation() == admission.Create
		resized := is(a, "", "pods", "resize") && a.GetOperation() == admission.Update
		if !created && !resized {
			return nil
		}
		check = func(r *corev1.LimitRange) []error { return podLimits(r, o) }
	case *corev1.PersistentVolumeClaim:
		if !is(a, "", "persistentvolumeclaims", "") {
			return nil
		}
		check = func(r *corev1.LimitRange) []error { return claimLimits(r, o) }
	default:
		return nil
	}
	for r := range p.ranges.All(a.GetNamespace()) {
		if err := errorlist.Aggregate(check(r)); err != nil {
			return admission.NewForbidden(a, err)
		}
	}
	return nil
}

// defaultResources sets the default requests and limits of containers and lists
// them in an annotation.
func defaultResources(pod *corev1.Pod, r *corev1.LimitRange) {
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	for _, item := range r.Spec.Limits {
		if item.Type == corev1.LimitTypeContainer {
			maps.Copy(requests, item.DefaultRequest)
			maps.Copy(limits, item.Default)
		}
	}
	var notes []string
	for _, list := range []struct {
		what       string
		containers []corev1.Container
	}{{"container", pod.Spec.Containers}, {"init container", pod.Spec.InitContainers}} {
		for i := range list.containers {
			c := &list.containers[i]
			// Requests have already been defaulted to limits that are set.
			for _, part := range []struct {
				name string
				list *corev1.ResourceList
				from corev1.ResourceList
			}{{"request", &c.Resources.Requests, requests}, {"limit", &c.Resources.Limits, limits}} {
				if set := setDefaults(part.list, part.from); len(set) > 0 {
					notes = append(notes, fmt.Sprintf("%s %s for %s %s", strings.Join(set, ", "), part.name, list.what, c.Name))
				}
			}
		}
	}
	if len(notes) > 0 {
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[limitRangerAnnotation] = "LimitRanger plugin set: " + strings.Join(notes, "; ")
	}
}

func setDefaults(list *corev1.ResourceList, from corev1.ResourceList) (set []string) {
	for name, quantity := range from {
		if _, has := (*list)[name]; has {
			continue
		}
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[name] = quantity.DeepCopy()
		set = append(set, string(name))
	}
	slices.Sort(set)
	return set
}

func podLimits(r *corev1.LimitRange, pod *corev1.Pod) []error {
	var errs []error
	for _, item := range r.Spec.Limits {
		switch item.Type {
		case corev1.LimitTypeContainer:
			for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
				for i := range list {
					errs = append(errs, limitErrors(item, list[i].Resources.Requests, list[i].Resources.Limits)...)
				}
			}
		case corev1.LimitTypePod:
			errs = append(errs, limitErrors(item,
				resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{ExcludeOverhead: true}),
				resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{ExcludeOverhead: true}))...)
		}
	}
	return errs
}

func claimLimits(r *corev1.LimitRange, claim *corev1.PersistentVolumeClaim) []error {
	var errs []error
	for _, item := range r.Spec.Limits {
		if item.Type != corev1.LimitTypePersistentVolumeClaim {
			continue
		}
		for name, lowest := range item.Min {
			if err := minimum(item.Type, name, lowest, claim.Spec.Resources.Requests, nil); err != nil {
				errs = append(errs, err)
			}
		}
		for name, highest := range item.Max {
			request, ok := claim.Spec.Resources.Requests[name]
			switch {
			case !ok:
				errs = append(errs, fmt.Errorf("maximum %s usage per %s is %s.  No request is specified", name, item.Type, highest.String()))
			case request.Cmp(highest) > 0:
				errs = append(errs, fmt.Errorf("maximum %s usage per %s is %s, but request is %s", name, item.Type, highest.String(), request.String()))
			}
		}
	}
	return errs
}

func limitErrors(item corev1.LimitRangeItem, requests, limits corev1.ResourceList) []error {
	var errs []error
	add := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	for _, name := range sortedNames(item.Min) {
		add(minimum(item.Type, name, item.Min[name], requests, limits))
	}
	for _, name := range sortedNames(item.Max) {
		add(maximum(item.Type, name, item.Max[name], requests, limits))
	}
	for _, name := range sortedNames(item.MaxLimitRequestRatio) {
		add(ratio(item.Type, name, item.MaxLimitRequestRatio[name], requests, limits))
	}
	return errs
}

func sortedNames(l corev1.ResourceList) []corev1.ResourceName {
	return slices.Sorted(maps.Keys(l))
}

func minimum(kind corev1.LimitType, name corev1.ResourceName, lowest resource.Quantity, requests, limits corev1.ResourceList) error {
	request, ok := requests[name]
	if !ok {
		return fmt.Errorf("minimum %s usage per %s is %s.  No request is specified", name, kind, lowest.String())
	}
	if request.Cmp(lowest) < 0 {
		return fmt.Errorf("minimum %s usage per %s is %s, but request is %s", name, kind, lowest.String(), request.String())
	}
	if limit, ok := limits[name]; ok && limit.Cmp(lowest) < 0 {
		return fmt.Errorf("minimum %s usage per %s is %s, but limit is %s", name, kind, lowest.String(), limit.String())
	}
	return nil
}

func maximum(kind corev1.LimitType, name corev1.ResourceName, highest resource.Quantity, requests, limits corev1.ResourceList) error {
	limit, ok := limits[name]
	if !ok {
		return fmt.Errorf("maximum %s usage per %s is %s.  No limit is specified", name, kind, highest.String())
	}
	if limit.Cmp(highest) > 0 {
		return fmt.Errorf("maximum %s usage per %s is %s, but limit is %s", name, kind, highest.String(), limit.String())
	}
	if request, ok := requests[name]; ok && request.Cmp(highest) > 0 {
		return fmt.Errorf("maximum %s usage per %s is %s, but request is %s", name, kind, highest.String(), request.String())
	}
	return nil
}

func ratio(kind corev1.LimitType, name corev1.ResourceName, highest resource.Quantity, requests, limits corev1.ResourceList) error {
	request, limit := requests[name], limits[name]
	if request.IsZero() {
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but no request is specified or request is 0", name, kind, highest.String())
	}
	if limit.IsZero() {
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but no limit is specified or limit is 0", name, kind, highest.String())
	}
	most := request.DeepCopy()
	most.AsDec().Mul(most.AsDec(), highest.AsDec()) // exact, unlike floating point
	if limit.Cmp(most) <= 0 {
		return nil
	}
	return fmt.Errorf("%s max limit to request ratio per %s is %s, but provided ratio is %f", name, kind, highest.String(),
		limit.AsApproximateFloat64()/request.AsApproximateFloat64())
}
