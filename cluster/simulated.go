package cluster

import "github.com/coracle-io/coracle/internal/simnode"

// SimulatedNodes are nodes without machines: each has a kubelet whose containers
// are timers in this process. Pods run there as their annotations say
// (simulation.coracle.io/start-after, ready-after, run-for and exit-code). The
// nodes are called sim-0, sim-1 and so on, and have the label
// simulation.coracle.io/node=true.
//
// Their containers end with the process. When it starts again, pods are started
// again on the same nodes, as after a restart of a machine.
type SimulatedNodes struct {
	// Count is the number of nodes.
	Count int `json:"count,omitzero"`
	// Resources are the capacity of each node. The default is cpu: 32,
	// memory: 256Gi, ephemeral-storage: 1Ti, pods: 110.
	Resources map[string]string `json:"resources,omitzero"`
	// Labels are further labels of the nodes.
	Labels map[string]string `json:"labels,omitzero"`
	// Zones are the zones of the nodes, in turn: the label
	// topology.kubernetes.io/zone.
	Zones []string `json:"zones,omitzero"`
}

// simulatedNodes returns the simulated nodes, none without options.
func (o *settings) simulatedNodes() (simnode.Nodes, error) {
	if o.Simulated == nil {
		return nil, nil
	}
	nodes, err := simnode.NewNodes(simnode.Options(*o.Simulated))
	if err != nil {
		return nil, &FieldError{Field: "Simulated", Err: err}
	}
	return nodes, nil
}
