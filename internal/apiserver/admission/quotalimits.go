package admission

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resources "k8s.io/apiserver/pkg/quota/v1"

	podutil "github.com/coracle-io/coracle/internal/pod"
)

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
	for c := range podutil.Containers(&pod.Spec) {
		have := map[corev1.ResourceName]bool{}
		for name := range c.Resources.Requests {
			have[name], have["requests."+name] = true, true
		}
		for name := range c.Resources.Limits {
			have["limits."+name] = true
		}
		for _, name := range limited {
			if slices.Contains(mustSpecify, name) && !have[name] {
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

// limitedBy are the quota's resources that the object has a part in.
func limitedBy(q *corev1.ResourceQuota, used corev1.ResourceList, obj any) []corev1.ResourceName {
	var out []corev1.ResourceName
	_, isPod := obj.(*corev1.Pod)
	for _, name := range resources.ResourceNames(q.Status.Hard) {
		if _, ok := used[name]; ok || isPod && slices.Contains(mustSpecify, name) {
			out = append(out, name)
		}
	}
	return out
}
