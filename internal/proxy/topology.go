package proxy

import (
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// isReady follows the API: an unknown state is a ready one.
func isReady(e *discoveryv1.Endpoint) bool {
	return e.Conditions.Ready == nil || *e.Conditions.Ready
}

// isServing is readiness that termination does not end.
func isServing(e *discoveryv1.Endpoint) bool {
	if e.Conditions.Serving == nil {
		return isReady(e)
	}
	return *e.Conditions.Serving
}

func isTerminating(e *discoveryv1.Endpoint) bool {
	return e.Conditions.Terminating != nil && *e.Conditions.Terminating
}

// serving picks the ready endpoints, or, when there is none at all, those that
// are going but still answer (KEP-1669).
func serving(list []candidate) []candidate {
	ready := filter(list, func(c candidate) bool { return isReady(c.endpoint) })
	if len(ready) > 0 {
		return ready
	}
	return filter(list, func(c candidate) bool { return isServing(c.endpoint) && isTerminating(c.endpoint) })
}

func onNode(list []candidate, node string) []candidate {
	return filter(list, func(c candidate) bool { return c.endpoint.NodeName != nil && *c.endpoint.NodeName == node })
}

// topology follows the hints of the slices (KEP-2433, KEP-3015): first those
// for this node, then those for its zone. Hints count only when every
// endpoint has one and one of them is meant for here; else all are used.
func topology(list []candidate, node Node) []candidate {
	forNode := func(c candidate) []string {
		var names []string
		if h := c.endpoint.Hints; h != nil {
			for _, n := range h.ForNodes {
				names = append(names, n.Name)
			}
		}
		return names
	}
	forZone := func(c candidate) []string {
		var names []string
		if h := c.endpoint.Hints; h != nil {
			for _, z := range h.ForZones {
				names = append(names, z.Name)
			}
		}
		return names
	}
	if near := hinted(list, forNode, node.Name); near != nil {
		return near
	}
	if near := hinted(list, forZone, node.Zone); near != nil {
		return near
	}
	return list
}

// hinted picks the endpoints whose hints name here, nil when hints must not
// be followed.
func hinted(list []candidate, hints func(candidate) []string, here string) []candidate {
	if here == "" {
		return nil
	}
	var near []candidate
	for _, c := range list {
		names := hints(c)
		if len(names) == 0 {
			return nil
		}
		if slices.Contains(names, here) {
			near = append(near, c)
		}
	}
	return near
}

func filter(list []candidate, keep func(candidate) bool) []candidate {
	var result []candidate
	for _, c := range list {
		if keep(c) {
			result = append(result, c)
		}
	}
	return result
}
