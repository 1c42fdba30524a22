package framework

import (
	"fmt"
	"slices"
	"strings"
)

// noNodesAvailable is the message of a FitError in a cluster without nodes.
const noNodesAvailable = "no nodes available to schedule pods"

// FitError says why no node can take a pod. Its text is upstream's.
type FitError struct {
	NumAllNodes int
	Nodes       *NodeToStatus
	// PreFilterMsg replaces the reasons of nodes if a PreFilter rejected the pod.
	PreFilterMsg string
	// PostFilterMsg is why PostFilter could not help, or how it does.
	PostFilterMsg string
	// UnschedulablePlugins and PendingPlugins rejected the pod somewhere.
	UnschedulablePlugins, PendingPlugins []string

	settled string // what Settle has kept of the text
}

// Settle keeps the text as it is now, and drops Nodes. An error that outlasts its cycle
// needs it: the scheduler uses its lists of nodes and statuses again for the next pod.
func (e *FitError) Settle() { e.settled, e.Nodes = e.Error(), nil }

// Error implements error.
func (e *FitError) Error() string {
	if e.settled != "" {
		return e.settled
	}
	if e.NumAllNodes == 0 {
		return noNodesAvailable
	}
	message := fmt.Sprintf("0/%d nodes are available:", e.NumAllNodes)
	if e.PreFilterMsg != "" {
		message += " " + e.PreFilterMsg + "."
	} else if e.Nodes != nil {
		if reasons := CountReasons(e.Nodes.reasons(e.NumAllNodes)); reasons != "" {
			message += " " + reasons + "."
		}
	}
	if e.PostFilterMsg != "" {
		message += " " + e.PostFilterMsg
	}
	return message
}

// AddPlugins notes which plugins rejected the pod on a node.
func (e *FitError) AddPlugins() { e.Nodes.each(func(s *Status, _ int) { e.AddPlugin(s) }) }

// AddPlugin notes which plugin rejected the pod.
func (e *FitError) AddPlugin(s *Status) {
	list := &e.UnschedulablePlugins
	if s.Code() == Pending {
		list = &e.PendingPlugins
	}
	if name := s.Plugin(); name != "" && !slices.Contains(*list, name) {
		*list = append(*list, name)
	}
}

// reasons counts the reasons of all nodes.
func (n *NodeToStatus) reasons(all int) map[string]int {
	reasons := map[string]int{}
	n.each(func(s *Status, nodes int) {
		for _, reason := range s.Reasons() {
			reasons[reason] += nodes
		}
	})
	if absent := all - n.Len(); absent > 0 {
		for _, reason := range n.Absent.Reasons() {
			reasons[reason] += absent
		}
	}
	return reasons
}

// CountReasons lists reasons with how many nodes gave each.
func CountReasons(reasons map[string]int) string {
	list := make([]string, 0, len(reasons))
	for reason, n := range reasons {
		list = append(list, fmt.Sprintf("%d %s", n, reason))
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}
