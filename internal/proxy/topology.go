package proxy

import (
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// isReady reports whether an endpoint is ready; by the API, unknown means
// ready.
func isReady(e *discoveryv1.Endpoint) bool {
	return e.Conditions.Ready == nil || *e.Conditions.Ready
}

// isServing reports whether an endpoint is ready, apart from termination; unknown means
// that it is.
func isServing(e *discoveryv1.Endpoint) bool {
	return e.Conditions.Serving == nil || *e.Conditions.Serving
}

func isTerminating(e *discoveryv1.Endpoint) bool {
	return e.Conditions.Terminating != nil && *e.Conditions.Terminating
}

// clusterEndpoints returns the ready endpoints that the hints select. If no
// endpoint is ready, it returns all terminating ones that still serve (KEP-1669).
func clusterEndpoints(list []candidate, node Node) []candidate {
	if all := ready(list); len(all) > 0 {
		return topology(all, node)
	}
	return servingTerminating(list)
}

// localEndpoints returns the ready endpoints on a node or, if there are none, the
// terminating ones there that still serve.
func localEndpoints(list []candidate, node Node) []candidate {
	local := onNode(list, node.Name)
	if all := ready(local); len(all) > 0 {
		return all
	}
	return servingTerminating(local)
}

func ready(list []candidate) []candidate {
	return filter(list, func(c candidate) bool { return isReady(c.endpoint) })
}

func servingTerminating(list []candidate) []candidate {
	return filter(list, func(c candidate) bool { return isServing(c.endpoint) && isTerminating(c.endpoint) })
}

func onNode(list []candidate, node string) []candidate {
	return filter(list, func(c candidate) bool { return c.endpoint.NodeName != nil && *c.endpoint.NodeName == node })
}

// topology applies the hints of the slices (KEP-2433, KEP-3015): first those
// for this node, then those for its zone. Hints apply only if all endpoints
// have them and at least one of them is for this node or zone. Otherwise all
// endpoints are used.
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

// hinted returns the endpoints whose hints name here, or nil if the hints do
// not apply.
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
