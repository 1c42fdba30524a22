package framework

import (
	"errors"
	"slices"
	"strings"
)

// Code is the outcome of a plugin.
type Code int

// The codes, with upstream's meanings.
const (
	// Success: a nil *Status is Success.
	Success Code = iota
	// Error is an internal failure: the attempt ends, and is repeated after a back-off.
	Error
	// Unschedulable: the pod cannot run there now. Preemption may help.
	Unschedulable
	// UnschedulableAndUnresolvable: preemption would not help.
	UnschedulableAndUnresolvable
	// Wait: Permit delays the binding.
	Wait
	// Skip: the plugin does not apply to this pod.
	Skip
	// Pending: the pod waits for something outside that is expected to come. When
	// it comes the pod is tried at once, without back-off.
	Pending
)

// String returns upstream's word for the code.
func (c Code) String() string {
	words := [...]string{"Success", "Error", "Unschedulable", "UnschedulableAndUnresolvable", "Wait", "Skip", "Pending"}
	if c < 0 || int(c) >= len(words) {
		return "Unknown"
	}
	return words[c]
}

// Status is the outcome of a plugin with its reasons. It is immutable; nil is
// Success.
type Status struct {
	code    Code
	reasons []string
	err     error
	plugin  string
	// transient is whether the next attempt may pass, though nothing in the cluster
	// changes.
	transient bool
}

// NewStatus returns a status of a plugin.
func NewStatus(code Code, plugin string, reasons ...string) *Status {
	s := &Status{code: code, reasons: reasons, plugin: plugin}
	if code == Error {
		s.err = errors.New(strings.Join(reasons, ", "))
	}
	return s
}

// AsStatus wraps an error; nil stays nil.
func AsStatus(plugin string, err error) *Status {
	if err == nil {
		return nil
	}
	return &Status{code: Error, reasons: []string{err.Error()}, err: err, plugin: plugin}
}

// Transient returns the rejection of a node by a plugin that could not find out
// whether the pod can run there. If no node can take the pod, the attempt has failed
// and is repeated after a back-off: an event that helps may never come.
func Transient(plugin, reason string) *Status {
	return &Status{code: UnschedulableAndUnresolvable, reasons: []string{reason}, plugin: plugin, transient: true}
}

// IsTransient reports whether the status is of Transient.
func (s *Status) IsTransient() bool { return s != nil && s.transient }

// Code returns the code.
func (s *Status) Code() Code {
	if s == nil {
		return Success
	}
	return s.code
}

// Plugin returns the name of the plugin that the status is of.
func (s *Status) Plugin() string {
	if s == nil {
		return ""
	}
	return s.plugin
}

// Reasons are upstream's words for why. They must not be changed.
func (s *Status) Reasons() []string {
	if s == nil {
		return nil
	}
	return s.reasons
}

// Message joins the reasons.
func (s *Status) Message() string { return strings.Join(s.Reasons(), ", ") }

// IsSuccess reports whether the code is Success.
func (s *Status) IsSuccess() bool { return s.Code() == Success }

// IsSkip reports whether the code is Skip.
func (s *Status) IsSkip() bool { return s.Code() == Skip }

// IsWait reports whether the code is Wait.
func (s *Status) IsWait() bool { return s.Code() == Wait }

// IsRejected reports whether the plugin rejected the pod, rather than failed.
func (s *Status) IsRejected() bool {
	c := s.Code()
	return c == Unschedulable || c == UnschedulableAndUnresolvable || c == Pending
}

// AsError returns the status as an error, nil for Success, Wait and Skip. The
// error of AsStatus is returned as it was.
func (s *Status) AsError() error {
	switch {
	case s.IsSuccess() || s.IsWait() || s.IsSkip():
		return nil
	case s.err != nil:
		return s.err
	}
	return errors.New(s.Message())
}

// And returns the rejection of a node by both; s may be nil. The plugin is that
// of s, and the code says that preemption would not help if either does.
func (s *Status) And(other *Status) *Status {
	if s == nil {
		return other
	}
	both := &Status{code: s.code, plugin: s.plugin, reasons: slices.Concat(s.reasons, other.reasons)}
	if other.code == UnschedulableAndUnresolvable {
		both.code = other.code
	}
	return both
}

// NodeToStatus is why each node was rejected.
type NodeToStatus struct {
	// Absent is the status of every node that has none of its own: those that
	// a PreFilter left out, or all of them if a PreFilter rejected the pod.
	Absent *Status
	byNode map[string]*Status // nil: made of visited when it is needed
	bySlot []*Status          // of visited, by NodeInfo.Slot; nil: made when it is needed

	visited  []*NodeInfo
	statuses []*Status
}

// NewNodeToStatus returns one without nodes.
func NewNodeToStatus(absent *Status, size int) *NodeToStatus {
	return &NodeToStatus{Absent: absent, byNode: make(map[string]*Status, size)}
}

// NodesToStatuses returns one with a status for each node. It is valid until
// the cycle ends.
func NodesToStatuses(absent *Status, nodes []*NodeInfo, statuses []*Status) *NodeToStatus {
	return &NodeToStatus{Absent: absent, visited: nodes, statuses: statuses}
}

func (n *NodeToStatus) names() map[string]*Status {
	if n.byNode == nil {
		n.byNode = make(map[string]*Status, len(n.visited))
		for i, node := range n.visited {
			n.byNode[node.Name] = n.statuses[i]
		}
		n.visited, n.statuses, n.bySlot = nil, nil, nil
	}
	return n.byNode
}

// Get returns the status of a node.
func (n *NodeToStatus) Get(node string) *Status {
	if s, ok := n.names()[node]; ok {
		return s
	}
	return n.Absent
}

// Of returns the status of a node. It is faster than Get for many nodes.
func (n *NodeToStatus) Of(node *NodeInfo) *Status {
	if n.byNode != nil {
		return n.Get(node.Name)
	}
	if n.bySlot == nil {
		slots := 0
		for _, node := range n.visited {
			slots = max(slots, node.Slot+1)
		}
		n.bySlot = make([]*Status, slots)
		for i, node := range n.visited {
			n.bySlot[node.Slot] = n.statuses[i]
		}
	}
	if node.Slot < len(n.bySlot) && n.bySlot[node.Slot] != nil {
		return n.bySlot[node.Slot]
	}
	return n.Absent
}

// Set notes the status of a node.
func (n *NodeToStatus) Set(node string, s *Status) { n.names()[node] = s }

// Len is how many nodes have a status of their own.
func (n *NodeToStatus) Len() int { return max(len(n.byNode), len(n.visited)) }

// NumWith returns how many of all nodes have a status with the code.
func (n *NodeToStatus) NumWith(code Code, all int) (number int) {
	n.each(func(s *Status, nodes int) {
		if s.Code() == code {
			number += nodes
		}
	})
	if n.Absent.Code() == code {
		number += all - n.Len()
	}
	return number
}

// each calls visit with each status and how many nodes in a row have it.
func (n *NodeToStatus) each(visit func(s *Status, nodes int)) {
	for _, s := range n.byNode {
		visit(s, 1)
	}
	for i, first := 1, 0; i <= len(n.statuses); i++ {
		if i == len(n.statuses) || n.statuses[i] != n.statuses[first] {
			visit(n.statuses[first], i-first)
			first = i
		}
	}
}
