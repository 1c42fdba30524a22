// Package explain says where the scheduler would place a pod in the cluster as
// it is, and why, without placing it.
//
//	API ──Load──► Cluster ──┬── Replace: what-if
//	                        ▼
//	configuration ──New──► Explainer: the real plugins, a Snapshot
//	                        │ Explain(pod)          ▲ Place(pod, node): the next decision sees it
//	                        ▼                       │
//	                     Decision ──────────────────┘──► JSON, or WriteText
//
// Plugins say in detail why they reject a pod if they implement
// framework.Explainer or PodExplainer; for other plugins, their reasons are
// shown. Reserve and Permit run only in a dry run, what comes after them never.
package explain

import (
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Decision is the decision that the scheduler would make about a pod.
type Decision struct {
	Namespace     string `json:"namespace"`
	Name          string `json:"name"`
	SchedulerName string `json:"schedulerName"`
	// Node is the node that the pod would go to, "" for none. Among the nodes
	// in Tied, which have the same score, the scheduler chooses at random.
	Node string   `json:"node,omitempty"`
	Tied []string `json:"tied,omitempty"`
	// Nominated says that Node was taken because room was made there.
	Nominated bool `json:"nominated,omitempty"`
	// Rejections are of the pod as a whole: it is not placed whatever the nodes are.
	// A plugin that fails is among them: it ends the scheduler's attempt.
	Rejections []Rejection `json:"rejections,omitempty"`
	// Message is the scheduler's own message if no node can take the pod.
	Message string `json:"message,omitempty"`
	// Nodes begin with the best node. Nodes that cannot take the pod follow,
	// beginning with those that have the fewest obstacles.
	Nodes      []NodeDecision `json:"nodes"`
	Preemption *Preemption    `json:"preemption,omitempty"`
	// PreemptionMessage is why no pods would be evicted for the pod.
	PreemptionMessage string `json:"preemptionMessage,omitempty"`
}

// NodeDecision holds the results of the plugins for a node.
type NodeDecision struct {
	Name       string      `json:"name"`
	Feasible   bool        `json:"feasible"`
	Rejections []Rejection `json:"rejections,omitempty"`
	// Score is the sum of the weighted scores.
	Score  int64   `json:"score"`
	Scores []Score `json:"scores,omitempty"`
}

// Rejection is why a plugin rejects a pod or a node.
type Rejection struct {
	Plugin string `json:"plugin"`
	// Reasons are those that the scheduler puts into events.
	Reasons   []string             `json:"reasons"`
	Obstacles []framework.Obstacle `json:"obstacles,omitempty"`
	// Preemptable says that the eviction of pods may help.
	Preemptable bool `json:"preemptable,omitempty"`
	// Nominated says that only pods for which room is being made are in the way.
	Nominated bool `json:"nominated,omitempty"`
}

// Score is the score that a plugin gives a node.
type Score struct {
	Plugin   string `json:"plugin"`
	Score    int64  `json:"score"` // normalized, 0 to 100
	Weight   int64  `json:"weight"`
	Weighted int64  `json:"weighted"`
}

// Preemption is which pods the scheduler would evict.
type Preemption struct {
	Node    string   `json:"node"`
	Victims []Victim `json:"victims,omitempty"`
	// NumPDBViolations is how many victims a PodDisruptionBudget protects.
	NumPDBViolations int `json:"numPDBViolations,omitempty"`
}

// Victim is a pod that would be evicted.
type Victim struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Priority  int32  `json:"priority"`
}

func newRejection(status *framework.Status, plugin string, obstacles []framework.Obstacle) Rejection {
	r := Rejection{Plugin: plugin, Reasons: status.Reasons(), Obstacles: obstacles, Preemptable: status.Code() == framework.Unschedulable}
	if len(r.Obstacles) == 0 {
		for _, reason := range r.Reasons {
			r.Obstacles = append(r.Obstacles, framework.Obstacle{Text: reason})
		}
	}
	return r
}

// obstacles is how many obstacles a node has.
func (n *NodeDecision) obstacles() (count int) {
	for i := range n.Rejections {
		count += len(n.Rejections[i].Obstacles)
	}
	return count
}
