package core

import (
	"cmp"
	"fmt"
	"sort"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/nodestatus"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/resourcelist"
	"github.com/coracle-io/coracle/internal/resource/printers"
)

// nodeFields are the fields of a node that belong to features which are off by
// default.
func nodeFields() []feature.Field[corev1.NodeSpec] {
	return []feature.Field[corev1.NodeSpec]{{
		Gate:  feature.InPlacePodVerticalScalingSchedulerPreemption,
		Used:  func(s *corev1.NodeSpec) bool { return s.PodPreemptionPolicy != nil },
		Clear: func(s *corev1.NodeSpec) { s.PodPreemptionPolicy = nil },
	}}
}

// Nodes is the resource nodes.
func Nodes() *resource.Resource {
	return resource.Define(resource.Definition[corev1.Node, *corev1.Node]{
		GroupVersion: corev1.SchemeGroupVersion,
		Names:        resource.Names{Kind: "Node", Plural: "nodes", ShortNames: []string{"no"}},
		Cluster:      true,
		Storage:      resource.Storage{Path: "minions"},
		Default:      defaultNode,
		Status: resource.Status[*corev1.Node]{
			Copy:        func(n, from *corev1.Node) { n.Status = from.Status },
			SetOnCreate: true,
			Prepare:     prepareNodeStatus,
			Validate:    validateNodeStatus,
		},
		Strategy: resource.Strategy[*corev1.Node]{
			PrepareForCreate: func(r *resource.RequestContext, n *corev1.Node) {
				n.Spec.ConfigSource = nil //nolint:staticcheck // removed: only a stored value may stay
				n.Status.Config = nil
				feature.Drop(r.Features, nodeFields(), &n.Spec, nil)
			},
			PrepareForUpdate: func(r *resource.RequestContext, n, old *corev1.Node) {
				if old.Spec.ConfigSource == nil { //nolint:staticcheck // removed: only a stored value may stay
					n.Spec.ConfigSource = nil //nolint:staticcheck // see above
				}
				feature.Drop(r.Features, nodeFields(), &n.Spec, &old.Spec)
			},
			Validate:       validateNode,
			ValidateUpdate: validateNodeUpdate,
			Warnings:       nodeWarnings,
		},
		Table: resource.Table[*corev1.Node]{
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
		},
		FieldSelectors: resource.FieldSelectors[*corev1.Node]{
			SelectableFields: func(n *corev1.Node) fields.Set {
				return fields.Set{"spec.unschedulable": fmt.Sprint(n.Spec.Unschedulable)}
			},
			Fields: []string{"spec.unschedulable"},
		},
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
	resourcelist.RoundUp(n.Status.Capacity)
	resourcelist.RoundUp(n.Status.Allocatable)
}

func nodeRow(n *corev1.Node, now time.Time) []any {
	info := &n.Status.NodeInfo
	kernel := orUnknown(info.KernelVersion)
	if info.KernelVersion != "" && info.Architecture != "" {
		kernel += " (" + info.Architecture + ")"
	}
	return []any{
		n.Name, nodeStatusCell(n), cmp.Or(strings.Join(nodeRoles(n), ","), printers.None),
		resource.Age(n.CreationTimestamp, now), info.KubeletVersion,
		nodeAddress(n, corev1.NodeInternalIP), nodeAddress(n, corev1.NodeExternalIP),
		orUnknown(info.OSImage), kernel, orUnknown(info.ContainerRuntimeVersion),
	}
}

func nodeStatusCell(n *corev1.Node) string {
	status := "Unknown"
	if c := nodestatus.Condition(n, corev1.NodeReady); c != nil {
		status = "NotReady"
		if c.Status == corev1.ConditionTrue {
			status = "Ready"
		}
	}
	if n.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	return status
}

// nodeRoles returns the roles that the labels node-role.kubernetes.io/ROLE and
// kubernetes.io/role=ROLE name.
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
	return printers.None
}

func orUnknown(s string) string {
	if s == "" {
		return "<unknown>"
	}
	return s
}
