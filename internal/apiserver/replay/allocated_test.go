package replay

import "strings"

// isAllocated reports whether a server chooses the values of a field, such as
// addresses, ports, UIDs in labels and names of token volumes.
func isAllocated(key string, value any) bool {
	switch key {
	case "clusterIP", "clusterIPs", "nodePort", "healthCheckNodePort", "controller-uid", "batch.kubernetes.io/controller-uid":
		return true
	case "name":
		s, _ := value.(string)
		return strings.HasPrefix(s, "kube-api-access-")
	}
	return false
}

// matchAllocated maps each value in theirs that a server chose to the value at
// the same place in ours.
func matchAllocated(key string, theirs, ours any, allocated map[any]any) {
	switch theirs := theirs.(type) {
	case map[string]any:
		ours, _ := ours.(map[string]any)
		for k, v := range theirs {
			matchAllocated(k, v, ours[k], allocated)
		}
	case []any:
		ours, _ := ours.([]any)
		for i, v := range theirs {
			if i < len(ours) {
				matchAllocated(key, v, ours[i], allocated)
			}
		}
	case string, float64:
		if isAllocated(key, theirs) && ours != nil {
			allocated[theirs] = ours
		}
	}
}

// replaceAllocated replaces the values that the recording server allocated by
// the values of this server.
func replaceAllocated(v any, allocated map[any]any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = replaceAllocated(v[k], allocated)
		}
	case []any:
		for i := range v {
			v[i] = replaceAllocated(v[i], allocated)
		}
	case string, float64:
		if ours, ok := allocated[v]; ok {
			return ours
		}
	}
	return v
}
