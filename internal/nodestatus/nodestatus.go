// Package nodestatus answers questions of components about the status and the
// taints of a Node.
package nodestatus

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Condition returns the condition of one type, or nil if there is none. It points
// into the node.
func Condition(n *v1.Node, t v1.NodeConditionType) *v1.NodeCondition {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == t {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}

// Ready returns the status of the condition Ready, or Unknown if there is none.
func Ready(n *v1.Node) v1.ConditionStatus {
	if c := Condition(n, v1.NodeReady); c != nil {
		return c.Status
	}
	return v1.ConditionUnknown
}

// LacksNetwork reports whether the kubelet says that nothing keeps the node from being
// Ready but a CNI configuration for its container runtime.
func LacksNetwork(n *v1.Node) bool {
	c := Condition(n, v1.NodeReady)
	return c != nil && c.Status != v1.ConditionTrue && strings.HasPrefix(c.Message, "container runtime network not ready")
}

// IsOutOfService reports whether an administrator has declared a node out of
// service by the taint node.kubernetes.io/out-of-service (KEP-2268). Its volumes
// may then be detached by force. Its pods are deleted only if it is also not
// ready.
func IsOutOfService(n *v1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t v1.Taint) bool { return t.Key == v1.TaintNodeOutOfService })
}
