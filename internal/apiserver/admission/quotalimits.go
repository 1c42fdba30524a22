package admission

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resources "k8s.io/apiserver/pkg/quota/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/coracle-io/coracle/internal/podquery"
)

// mustSpecify reports whether every container must specify a resource if a
// quota limits it.
func mustSpecify(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
		corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory:
		return true
	}
	return false
}

// unspecified returns an error that lists the limited resources that containers
// do not specify. The containers of a pod with resources of its own need not.
func unspecified(pod *corev1.Pod, limited []corev1.ResourceName) error {
	if resourcehelper.IsPodLevelResourcesSet(pod) {
		return nil
	}
	missing := map[string][]string{}
	for c := range podquery.Containers(&pod.Spec) {
		have := map[corev1.ResourceName]bool{}
		for name := range c.Resources.Requests {
			have[name], have["requests."+name] = true, true
		}
		for name := range c.Resources.Limits {
			have["limits."+name] = true
		}
		for _, name := range limited {
			if mustSpecify(name) && !have[name] {
				missing[string(name)] = append(missing[string(name)], c.Name)
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

// limitedBy returns the resources of the quota that the object uses.
func limitedBy(q *corev1.ResourceQuota, used corev1.ResourceList, obj any) []corev1.ResourceName {
	var out []corev1.ResourceName
	_, isPod := obj.(*corev1.Pod)
	for _, name := range resources.ResourceNames(q.Status.Hard) {
		if _, ok := used[name]; ok || isPod && mustSpecify(name) {
			out = append(out, name)
		}
	}
	return out
}
