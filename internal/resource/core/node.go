package core

import (
	"fmt"
	"sort"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/cell"
)

// nodeFields are the parts of a node that belong to features which are off by
// default.
var nodeFields = []feature.Field[corev1.NodeSpec]{{
	Gate:  "InPlacePodVerticalScalingSchedulerPreemption",
	Used:  func(s *corev1.NodeSpec) bool { return s.PodPreemptionPolicy != nil },
	Clear: func(s *corev1.NodeSpec) { s.PodPreemptionPolicy = nil },
}}

// Nodes is the resource nodes.
func Nodes() *resource.Resource {
	return resource.Define(resource.Definition[corev1.Node, *corev1.Node]{
		GroupVersion:     corev1.SchemeGroupVersion,
		Kind:             "Node",
		Plural:           "nodes",
		ShortNames:       []string{"no"},
		Cluster:          true,
		StoragePath:      "minions",
		Default:          defaultNode,
		CopyStatus:       func(n, from *corev1.Node) { n.Status = from.Status },
		CreateWithStatus: true,
		PrepareForCreate: func(r *resource.Request, n *corev1.Node) {
			n.Spec.ConfigSource = nil //nolint:staticcheck // removed: only what is stored may stay
			n.Status.Config = nil
			feature.Drop(r.Features, nodeFields, &n.Spec, nil)
		},
		PrepareForUpdate: func(r *resource.Request, n, old *corev1.Node) {
			if old.Spec.ConfigSource == nil { //nolint:staticcheck // removed: only what is stored may stay
				n.Spec.ConfigSource = nil //nolint:staticcheck // see above
			}
			feature.Drop(r.Features, nodeFields, &n.Spec, &old.Spec)
		},
		PrepareStatus:  prepareNodeStatus,
		ValidateStatus: validateNodeStatus,
		Validate:       validateNode,
		ValidateUpdate: validateNodeUpdate,
		Warnings:       nodeWarnings,
		Columns: []metav1.TableColumnDefinition{
			resource.NameColumn(),
			resource.Column("Status", "string", "The status of the node"),
			resource.Column("Roles", "string", "The roles of the node"),
			resource.AgeColumn(),
			resource.Column("Version", "string", corev1.NodeSystemInfo{}.SwaggerDoc()["kubeletVersion"]),
			resource.WideColumn("Internal-IP", "string", corev1.NodeStatus{}.SwaggerDoc()["addresses"]),
			resource.WideColumn("External-IP", "string", corev1.NodeStatus{}.SwaggerDoc()["addresses"]),
			resource.WideColumn("OS-Image", "string", corev1.NodeSystemInfo{}.SwaggerDoc()["osImage"]),
			resource.WideColumn("Kernel-Version", "string", corev1.NodeSystemInfo{}.SwaggerDoc()["kernelVersion"]),
			resource.WideColumn("Container-Runtime", "string", corev1.NodeSystemInfo{}.SwaggerDoc()["containerRuntimeVersion"]),
		},
		Row: nodeRow,
		SelectableFields: func(n *corev1.Node) fields.Set {
			return fields.Set{"spec.unschedulable": fmt.Sprint(n.Spec.Unschedulable)}
		},
		Fields: []string{"spec.unschedulable"},
		Subresources: []resource.SubresourceDefinition[corev1.Node, *corev1.Node]{{
			Name:   "proxy",
			Kind:   corev1.SchemeGroupVersion.WithKind("NodeProxyOptions"),
			Verbs:  []string{"create", "delete", "get", "patch", "update"},
			Action: resource.ProxyNode,
		}},
	})
}

func defaultNode(n *corev1.Node) {
	spec := &n.Spec
	if spec.PodCIDR != "" && (len(spec.PodCIDRs) == 0 || spec.PodCIDRs[0] != spec.PodCIDR) {
		spec.PodCIDRs = []string{spec.PodCIDR}
	}
	if len(spec.PodCIDRs) > 0 {
		spec.PodCIDR = spec.PodCIDRs[0]
	}
	if n.Status.Allocatable == nil && n.Status.Capacity != nil {
		n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	}
	roundResources(n.Status.Capacity)
	roundResources(n.Status.Allocatable)
}

func nodeRow(n *corev1.Node, now time.Time) []any {
	info := &n.Status.NodeInfo
	return []any{
		n.Name, nodeStatusCell(n), orNone(strings.Join(nodeRoles(n), ",")),
		resource.Age(n.CreationTimestamp, now), info.KubeletVersion,
		nodeAddress(n, corev1.NodeInternalIP), nodeAddress(n, corev1.NodeExternalIP),
		orUnknown(info.OSImage), orUnknown(info.KernelVersion), orUnknown(info.ContainerRuntimeVersion),
	}
}

func nodeStatusCell(n *corev1.Node) string {
	status := "Unknown"
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady {
			status = "NotReady"
			if c.Status == corev1.ConditionTrue {
				status = "Ready"
			}
		}
	}
	if n.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	return status
}

// nodeRoles are named by the labels node-role.kubernetes.io/ROLE and
// kubernetes.io/role=ROLE.
func nodeRoles(n *corev1.Node) []string {
	const prefix, label = "node-role.kubernetes.io/", "kubernetes.io/role"
	seen := map[string]bool{}
	for key, value := range n.Labels {
		if role, ok := strings.CutPrefix(key, prefix); ok && role != "" {
			seen[role] = true
		} else if key == label && value != "" {
			seen[value] = true
		}
	}
	roles := make([]string, 0, len(seen))
	for role := range seen {
		roles = append(roles, role)
	}
	sort.Strings(roles)
	return roles
}

func nodeAddress(n *corev1.Node, kind corev1.NodeAddressType) string {
	for _, address := range n.Status.Addresses {
		if address.Type == kind {
			return address.Address
		}
	}
	return cell.None
}

func orNone(s string) string {
	if s == "" {
		return cell.None
	}
	return s
}

func orUnknown(s string) string {
	if s == "" {
		return "<unknown>"
	}
	return s
}
