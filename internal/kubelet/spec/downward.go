package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/coracle-io/coracle/internal/amount"
)

// Field returns the value of one of the pod's fields that the downward API offers.
func Field(pod *v1.Pod, path string, podIPs, hostIPs []string) (string, error) {
	if name, key, ok := subscript(path); ok {
		switch name {
		case "metadata.annotations":
			return pod.Annotations[key], nil
		case "metadata.labels":
			return pod.Labels[key], nil
		}
		return "", fmt.Errorf("fieldPath %q does not support subscript", path)
	}
	first := func(list []string) string {
		if len(list) == 0 {
			return ""
		}
		return list[0]
	}
	switch path {
	case "metadata.annotations":
		return lines(pod.Annotations), nil
	case "metadata.labels":
		return lines(pod.Labels), nil
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP":
		return first(hostIPs), nil
	case "status.hostIPs":
		return strings.Join(hostIPs, ","), nil
	case "status.podIP":
		return first(podIPs), nil
	case "status.podIPs":
		return strings.Join(podIPs, ","), nil
	}
	return "", fmt.Errorf("unsupported fieldPath: %v", path)
}

func subscript(path string) (name, key string, ok bool) {
	rest, found := strings.CutSuffix(path, "']")
	if !found {
		return "", "", false
	}
	return strings.Cut(rest, "['")
}

func lines(m map[string]string) string {
	keys := slices.Sorted(maps.Keys(m))
	out := make([]string, 0, len(keys))
	for _, k := range keys {
		out = append(out, fmt.Sprintf("%v=%q", k, m[k]))
	}
	return strings.Join(out, "\n")
}

// ResourceField returns one of a container's requests or limits in units of
// the divisor, rounded up. A limit that is not set is the node's allocatable.
func ResourceField(pod *v1.Pod, c *v1.Container, ref *v1.ResourceFieldSelector, allocatable v1.ResourceList) (string, error) {
	kind, name, _ := strings.Cut(ref.Resource, ".")
	resourceName := v1.ResourceName(name)
	var value resource.Quantity
	switch kind {
	case "limits":
		var ok bool
		value, ok = c.Resources.Limits[resourceName]
		if !ok || value.IsZero() {
			value = allocatable[resourceName]
			if resourcehelper.IsPodLevelResourcesSet(pod) {
				if q, ok := pod.Spec.Resources.Limits[resourceName]; ok {
					value = q
				}
			}
		}
	case "requests":
		value = c.Resources.Requests[resourceName]
	default:
		return "", fmt.Errorf("unsupported container resource : %v", ref.Resource)
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if resourceName == v1.ResourceCPU {
		return fmt.Sprint(ceil(amount.Milli(value), amount.Milli(divisor))), nil
	}
	return fmt.Sprint(ceil(amount.Value(value), amount.Value(divisor))), nil
}

func ceil(a, b int64) int64 {
	if b == 0 {
		return a
	}
	return amount.Sum(a, b-1) / b
}
