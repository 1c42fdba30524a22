// Package node maintains the Node object, its status and its Lease. It stands
// for upstream's node status setters and node lease controller.
package node

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/feature"
)

// Facts is everything that the status of a node depends on.
type Facts struct {
	Hostname    string
	IPs         []string
	Capacity    v1.ResourceList
	Allocatable v1.ResourceList
	MaxPods     int32
	Info        v1.NodeSystemInfo
	Port        int32
	Images      []*runtimeapi.Image
	MaxImages   int
	Handlers    []*runtimeapi.RuntimeHandler
	Features    *runtimeapi.RuntimeFeatures
	Gates       *feature.Set // of the kubelet; nil: the defaults
	// VolumesInUse are the attachable volumes that may be mounted.
	VolumesInUse []v1.UniqueVolumeName
	// The pressure conditions.
	MemoryPressure, DiskPressure, PIDPressure bool
	// NotReady lists why the node is not ready. It is empty if the node is
	// ready.
	NotReady []string
	Now      time.Time
}

// Status returns the status of a node. It takes transition times and what
// others wrote from previous.
func Status(f Facts, previous *v1.NodeStatus) v1.NodeStatus {
	out := *previous.DeepCopy()
	pods := *resource.NewQuantity(int64(f.MaxPods), resource.DecimalSI)
	out.Capacity = merge(previous.Capacity, f.Capacity)
	out.Capacity[v1.ResourcePods] = pods
	out.Allocatable = merge(out.Capacity, f.Allocatable)
	out.Allocatable[v1.ResourcePods] = pods
	out.NodeInfo = f.Info
	if !f.Gates.Enabled(feature.KubeletInUserNamespace) {
		out.NodeInfo.RunningInUserNamespace = nil
	}
	out.DaemonEndpoints.KubeletEndpoint.Port = f.Port
	out.Addresses = nil
	for _, ip := range f.IPs {
		out.Addresses = append(out.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip})
	}
	out.Addresses = append(out.Addresses, v1.NodeAddress{Type: v1.NodeHostName, Address: f.Hostname})
	out.Images = images(f.Images, f.MaxImages)
	out.RuntimeHandlers = nil
	for _, h := range f.Handlers {
		handler := v1.NodeRuntimeHandler{Name: h.GetName()}
		if features := h.GetFeatures(); features != nil {
			recursive, users := features.GetRecursiveReadOnlyMounts(), features.GetUserNamespaces()
			handler.Features = &v1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: &recursive, UserNamespaces: &users}
		}
		out.RuntimeHandlers = append(out.RuntimeHandlers, handler)
	}
	// The runtime lists them in any order, which would be a change of the Node.
	slices.SortFunc(out.RuntimeHandlers, func(a, b v1.NodeRuntimeHandler) int { return strings.Compare(a.Name, b.Name) })
	if f.Features != nil {
		groups := f.Features.GetSupplementalGroupsPolicy()
		out.Features = &v1.NodeFeatures{SupplementalGroupsPolicy: &groups}
	}
	out.DeclaredFeatures = declaredFeatures(f.Gates, f.Features)
	out.VolumesInUse = f.VolumesInUse
	pressure := func(t v1.NodeConditionType, is bool, yesReason, yes, noReason, no string) {
		c := v1.NodeCondition{Type: t, Status: v1.ConditionFalse, Reason: noReason, Message: no}
		if is {
			c.Status, c.Reason, c.Message = v1.ConditionTrue, yesReason, yes
		}
		setCondition(&out, c, f.Now)
	}
	pressure(v1.NodeMemoryPressure, f.MemoryPressure, "KubeletHasInsufficientMemory", "kubelet has insufficient memory available", "KubeletHasSufficientMemory", "kubelet has sufficient memory available")
	pressure(v1.NodeDiskPressure, f.DiskPressure, "KubeletHasDiskPressure", "kubelet has disk pressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure")
	pressure(v1.NodePIDPressure, f.PIDPressure, "KubeletHasInsufficientPID", "kubelet has insufficient PID available", "KubeletHasSufficientPID", "kubelet has sufficient PID available")
	ready := v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"}
	if len(f.NotReady) > 0 {
		ready.Status, ready.Reason, ready.Message = v1.ConditionFalse, "KubeletNotReady", "["+strings.Join(f.NotReady, ", ")+"]"
		if len(f.NotReady) == 1 {
			ready.Message = f.NotReady[0]
		}
	}
	setCondition(&out, ready, f.Now)
	return out
}

// declaredFeatures returns the features of this kubelet that pods or the API
// server can need on the node and that are on, sorted (KEP-5328). runtime are those of
// the container runtime.
func declaredFeatures(gates *feature.Set, runtime *runtimeapi.RuntimeFeatures) (declared []string) {
	for _, gate := range []feature.Gate{
		feature.ExtendWebSocketsToKubelet, feature.InPlacePodLevelResourcesVerticalScaling,
		feature.InPlacePodVerticalScalingInitContainers, feature.RestartAllContainersOnContainerExits,
	} {
		if gates.Enabled(gate) {
			declared = append(declared, string(gate))
		}
	}
	if gate := feature.UserNamespacesHostNetworkSupport; gates.Enabled(gate) && runtime.GetUserNamespacesHostNetwork() {
		declared = append(declared, string(gate))
	}
	return declared
}

// transitions returns the reasons of the events for the conditions that
// changed. A new node that is not ready is no change.
func transitions(before, after *v1.NodeStatus) []string {
	status := func(s *v1.NodeStatus, t v1.NodeConditionType) v1.ConditionStatus {
		for _, c := range s.Conditions {
			if c.Type == t {
				return c.Status
			}
		}
		return ""
	}
	var out []string
	for _, c := range []struct {
		condition v1.NodeConditionType
		yes, no   string
	}{
		{v1.NodeMemoryPressure, "NodeHasInsufficientMemory", "NodeHasSufficientMemory"},
		{v1.NodeDiskPressure, "NodeHasDiskPressure", "NodeHasNoDiskPressure"},
		{v1.NodePIDPressure, "NodeHasInsufficientPID", "NodeHasSufficientPID"},
		{v1.NodeReady, "NodeReady", "NodeNotReady"},
	} {
		old, now := status(before, c.condition), status(after, c.condition)
		switch {
		case old == now, c.condition == v1.NodeReady && old == "" && now != v1.ConditionTrue:
		case now == v1.ConditionTrue:
			out = append(out, c.yes)
		default:
			out = append(out, c.no)
		}
	}
	return out
}

// merge adds the extended resources of others to the kubelet's own resources.
func merge(others, own v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	for name, q := range others {
		if strings.Contains(string(name), "/") {
			out[name] = q
		}
	}
	for name, q := range own {
		out[name] = q
	}
	return out
}

func setCondition(s *v1.NodeStatus, c v1.NodeCondition, now time.Time) {
	c.LastHeartbeatTime = metav1.NewTime(now)
	c.LastTransitionTime = c.LastHeartbeatTime
	for i := range s.Conditions {
		if s.Conditions[i].Type != c.Type {
			continue
		}
		if s.Conditions[i].Status == c.Status {
			c.LastTransitionTime = s.Conditions[i].LastTransitionTime
		}
		s.Conditions[i] = c
		return
	}
	s.Conditions = append(s.Conditions, c)
}

// images returns the largest images, at most limit. A limit of -1 means all.
func images(list []*runtimeapi.Image, limit int) []v1.ContainerImage {
	sorted := slices.Clone(list)
	slices.SortFunc(sorted, func(a, b *runtimeapi.Image) int {
		if a.GetSize() != b.GetSize() {
			if a.GetSize() > b.GetSize() {
				return -1
			}
			return 1
		}
		return strings.Compare(a.GetId(), b.GetId())
	})
	if limit >= 0 && len(sorted) > limit {
		sorted = sorted[:limit]
	}
	const maxNames = 5
	var out []v1.ContainerImage
	for _, image := range sorted {
		names := slices.Concat(image.GetRepoDigests(), image.GetRepoTags())
		if len(names) > maxNames {
			names = names[:maxNames]
		}
		if len(names) > 0 {
			out = append(out, v1.ContainerImage{Names: names, SizeBytes: int64(image.GetSize())})
		}
	}
	return out
}

// Changed reports whether two statuses differ in more than the times of their
// conditions.
func Changed(a, b *v1.NodeStatus) bool {
	x, y := a.DeepCopy(), b.DeepCopy()
	for _, s := range []*v1.NodeStatus{x, y} {
		for i := range s.Conditions {
			s.Conditions[i].LastHeartbeatTime = metav1.Time{}
			s.Conditions[i].LastTransitionTime = metav1.Time{}
		}
	}
	return !equality.Semantic.DeepEqual(x, y)
}
