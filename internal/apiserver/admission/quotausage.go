package admission

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	quota "k8s.io/apiserver/pkg/quota/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// countedByName are the resources whose number is also limited under their
// plain name, besides count/NAME.
var countedByName = map[string]corev1.ResourceName{
	"pods":                   corev1.ResourcePods,
	"services":               corev1.ResourceServices,
	"replicationcontrollers": corev1.ResourceReplicationControllers,
	"resourcequotas":         corev1.ResourceQuotas,
	"secrets":                corev1.ResourceSecrets,
	"configmaps":             corev1.ResourceConfigMaps,
	"persistentvolumeclaims": corev1.ResourcePersistentVolumeClaims,
}

// usage is what an object takes from a quota. It counts as one object, plus
// what it asks for.
func usage(gr schema.GroupResource, obj any) corev1.ResourceList {
	one := *resource.NewQuantity(1, resource.DecimalSI)
	used := corev1.ResourceList{corev1.ResourceName("count/" + gr.String()): one}
	if name, ok := countedByName[gr.Resource]; ok && gr.Group == "" {
		used[name] = one
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		if o.Status.Phase == corev1.PodFailed || o.Status.Phase == corev1.PodSucceeded {
			return corev1.ResourceList{corev1.ResourceName("count/" + gr.String()): one}
		}
		podUsage(used, o)
	case *corev1.Service:
		serviceUsage(used, o)
	case *corev1.PersistentVolumeClaim:
		claimUsage(used, o, one)
	}
	return used
}

func podUsage(used corev1.ResourceList, pod *corev1.Pod) {
	for name, q := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
		switch {
		case name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage:
			used[name] = q
			used["requests."+name] = q
		case strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
			used[name] = q
			used["requests."+name] = q
		case extendedResource(name):
			used["requests."+name] = q
		}
	}
	for name, q := range resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{}) {
		if name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage {
			used["limits."+name] = q
		}
	}
}

func serviceUsage(used corev1.ResourceList, s *corev1.Service) {
	ports := int64(0)
	switch s.Spec.Type {
	case corev1.ServiceTypeNodePort:
		ports = int64(len(s.Spec.Ports))
	case corev1.ServiceTypeLoadBalancer:
		used[corev1.ResourceServicesLoadBalancers] = *resource.NewQuantity(1, resource.DecimalSI)
		if s.Spec.AllocateLoadBalancerNodePorts == nil || *s.Spec.AllocateLoadBalancerNodePorts {
			ports = int64(len(s.Spec.Ports))
		} else {
			for _, p := range s.Spec.Ports {
				if p.NodePort != 0 {
					ports++
				}
			}
		}
	}
	used[corev1.ResourceServicesNodePorts] = *resource.NewQuantity(ports, resource.DecimalSI)
}

func claimUsage(used corev1.ResourceList, c *corev1.PersistentVolumeClaim, one resource.Quantity) {
	class := ""
	if c.Spec.StorageClassName != nil {
		class = *c.Spec.StorageClassName
	}
	if beta, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		class = beta
	}
	if class != "" {
		used[corev1.ResourceName(class+".storageclass.storage.k8s.io/persistentvolumeclaims")] = one
	}
	if size, ok := c.Spec.Resources.Requests[corev1.ResourceStorage]; ok {
		if allocated, ok := c.Status.AllocatedResources[corev1.ResourceStorage]; ok && allocated.Cmp(size) > 0 {
			size = allocated
		}
		used[corev1.ResourceRequestsStorage] = size
		if class != "" {
			used[corev1.ResourceName(class+".storageclass.storage.k8s.io/requests.storage")] = size
		}
	}
}

// mustSpecify are the resources that every container has to state if a quota
// limits them.
var mustSpecify = []corev1.ResourceName{
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
	corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory,
}

// unspecified names what the pod's containers leave out of the limited
// resources; nil if nothing.
func unspecified(pod *corev1.Pod, limited []corev1.ResourceName) error {
	missing := map[string][]string{}
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			have := map[corev1.ResourceName]bool{}
			for name := range list[i].Resources.Requests {
				have[name], have["requests."+name] = true, true
			}
			for name := range list[i].Resources.Limits {
				have["limits."+name] = true
			}
			for _, name := range limited {
				if slices.Contains(mustSpecify, name) && !have[name] {
					missing[string(name)] = append(missing[string(name)], list[i].Name)
				}
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	var parts []string
	for name, containers := range missing {
		slices.Sort(containers)
		parts = append(parts, fmt.Sprintf("%s for: %s", name, strings.Join(containers, ",")))
	}
	slices.Sort(parts)
	return fmt.Errorf("must specify %s", strings.Join(parts, "; "))
}

// inScope says whether the object is one that the quota's scopes select.
func inScope(q *corev1.ResourceQuota, obj any) (bool, error) {
	selectors := make([]corev1.ScopedResourceSelectorRequirement, 0, len(q.Spec.Scopes))
	for _, s := range q.Spec.Scopes {
		selectors = append(selectors, corev1.ScopedResourceSelectorRequirement{ScopeName: s, Operator: corev1.ScopeSelectorOpExists})
	}
	if q.Spec.ScopeSelector != nil {
		selectors = append(selectors, q.Spec.ScopeSelector.MatchExpressions...)
	}
	if len(selectors) == 0 {
		return true, nil
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return false, nil
	}
	for _, s := range selectors {
		if !scopeSelects(s, pod) {
			return false, nil
		}
	}
	return true, nil
}

func scopeSelects(s corev1.ScopedResourceSelectorRequirement, pod *corev1.Pod) bool {
	terminating := pod.Spec.ActiveDeadlineSeconds != nil && *pod.Spec.ActiveDeadlineSeconds >= 0
	switch s.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return terminating
	case corev1.ResourceQuotaScopeNotTerminating:
		return !terminating
	case corev1.ResourceQuotaScopeBestEffort:
		return bestEffort(pod)
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !bestEffort(pod)
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return crossNamespace(pod.Spec.Affinity)
	case corev1.ResourceQuotaScopePriorityClass:
		class := pod.Spec.PriorityClassName
		switch s.Operator {
		case corev1.ScopeSelectorOpExists:
			return class != ""
		case corev1.ScopeSelectorOpDoesNotExist:
			return class == ""
		case corev1.ScopeSelectorOpIn:
			return slices.Contains(s.Values, class)
		case corev1.ScopeSelectorOpNotIn:
			return !slices.Contains(s.Values, class)
		}
	}
	return false
}

// bestEffort says whether no container states cpu or memory.
func bestEffort(pod *corev1.Pod) bool {
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			for _, l := range []corev1.ResourceList{list[i].Resources.Requests, list[i].Resources.Limits} {
				for name, q := range l {
					if (name == corev1.ResourceCPU || name == corev1.ResourceMemory) && !q.IsZero() {
						return false
					}
				}
			}
		}
	}
	return true
}

func crossNamespace(a *corev1.Affinity) bool {
	if a == nil {
		return false
	}
	var terms []corev1.PodAffinityTerm
	collect := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		terms = append(terms, required...)
		for _, w := range preferred {
			terms = append(terms, w.PodAffinityTerm)
		}
	}
	if p := a.PodAffinity; p != nil {
		collect(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if p := a.PodAntiAffinity; p != nil {
		collect(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool { return len(t.Namespaces) > 0 || t.NamespaceSelector != nil })
}

// limitedBy are the quota's resources that the object has a part in.
func limitedBy(q *corev1.ResourceQuota, used corev1.ResourceList, obj any) []corev1.ResourceName {
	var out []corev1.ResourceName
	_, isPod := obj.(*corev1.Pod)
	for _, name := range quota.ResourceNames(q.Status.Hard) {
		if _, ok := used[name]; ok || isPod && slices.Contains(mustSpecify, name) {
			out = append(out, name)
		}
	}
	return out
}
