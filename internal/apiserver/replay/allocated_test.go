package replay

import "strings"

// allocates tells whether servers choose the values of a field: addresses,
// ports, uids in labels, names of token volumes.
func allocates(key string, value any) bool {
	switch key {
	case "clusterIP", "clusterIPs", "nodePort", "healthCheckNodePort", "controller-uid", "batch.kubernetes.io/controller-uid":
		return true
	case "name":
		s, _ := value.(string)
		return strings.HasPrefix(s, "kube-api-access-")
	}
	return false
}

// match notes each value in theirs that a server chose, and the value at the
// same place in ours.
func match(key string, theirs, ours any, allocated map[any]any) {
	switch theirs := theirs.(type) {
	case map[string]any:
		ours, _ := ours.(map[string]any)
		for k, v := range theirs {
			match(k, v, ours[k], allocated)
		}
	case []any:
		ours, _ := ours.([]any)
		for i, v := range theirs {
			if i < len(ours) {
				match(key, v, ours[i], allocated)
			}
		}
	case string, float64:
		if allocates(key, theirs) && ours != nil {
			allocated[theirs] = ours
		}
	}
}

// replace puts the values of this server in the place of the other's.
func replace(v any, allocated map[any]any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = replace(v[k], allocated)
		}
	case []any:
		for i := range v {
			v[i] = replace(v[i], allocated)
		}
	case string, float64:
		if ours, ok := allocated[v]; ok {
			return ours
		}
	}
	return v
}
