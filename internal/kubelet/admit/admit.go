// Package admit decides whether a node admits a pod that is bound to it. It
// corresponds to upstream's admit handlers (package lifecycle).
package admit

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	corev1helper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/amount"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/kubelet/plan"
	"github.com/coracle-io/coracle/internal/kubelet/shutdown"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	"github.com/coracle-io/coracle/internal/podquery"
)

// Rejection is the reason and message in the status of a rejected pod.
type Rejection struct{ Reason, Message string }

// Policy is the admission policy of a node.
type Policy struct {
	AllowedSysctls []string
	AppArmor       bool                          // the kernel enforces its profiles
	Pressure       func() []v1.NodeConditionType // pressure conditions that are true
	Node           func() *v1.Node               // nil before there is one
	LatestNode     func() *v1.Node               // asks the API server, nil if that fails
	Allocatable    func() v1.ResourceList
	Features       *feature.Set
	ShuttingDown   func() bool // nil: never

	sums Sums
}

// Admit returns why the node rejects the pod given the running pods, or nil if
// it admits it.
func (p *Policy) Admit(pod *v1.Pod, running []*v1.Pod) *Rejection {
	if p.ShuttingDown != nil && p.ShuttingDown() {
		return &Rejection{shutdown.RejectedReason, shutdown.RejectedMessage}
	}
	if r := containers(pod); r != nil {
		return r
	}
	if r := Sysctls(pod, p.AllowedSysctls); r != nil {
		return r
	}
	if spec.NeedsAppArmor(pod) && !p.AppArmor {
		return &Rejection{"AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host"}
	}
	if r := Pressure(pod, podquery.QOSClass(pod), p.Pressure()); r != nil {
		return r
	}
	node := p.Node()
	if node != nil && p.LatestNode != nil && onNode(pod, node, p.Features) != nil {
		// The scheduler may know newer labels, taints and features.
		if latest := p.LatestNode(); latest != nil {
			node = latest
		}
	}
	return check(pod, node, running, p.Allocatable(), p.Features, p.sums.Requests)
}

// Check checks a pod against the pods that run on the node. Without a node
// object it skips the rules for labels and taints.
func Check(pod *v1.Pod, node *v1.Node, others []*v1.Pod, allocatable v1.ResourceList, features *feature.Set) *Rejection {
	return check(pod, node, others, allocatable, features, new(Sums).Requests)
}

func check(pod *v1.Pod, node *v1.Node, others []*v1.Pod, allocatable v1.ResourceList, features *feature.Set, requests func([]*v1.Pod, ...v1.ResourceName) v1.ResourceList) *Rejection {
	if r := operatingSystem(pod); r != nil {
		return r
	}
	if node != nil {
		if r := onNode(pod, node, features); r != nil {
			return r
		}
	}
	if r := ports(pod, others); r != nil {
		return r
	}
	return resources(pod, others, allocatable, requests)
}

// maxResources is how many requests and limits the containers of a pod may have together.
// They are added up each time that a node compares its pods.
const maxResources = 8192

// containers rejects a pod with more containers than a node runs, or with too many
// resources.
func containers(pod *v1.Pod) *Rejection {
	if n := len(pod.Spec.InitContainers) + len(pod.Spec.Containers); n > plan.MaxContainers {
		return &Rejection{"TooManyContainers", fmt.Sprintf("Pod has %d containers, and a node runs at most %d of a pod", n, plan.MaxContainers)}
	}
	n := 0
	for c := range podquery.Containers(&pod.Spec) {
		n += len(c.Resources.Requests) + len(c.Resources.Limits)
	}
	if n > maxResources {
		return &Rejection{"TooManyResources", fmt.Sprintf("Pod has %d requests and limits of containers, and a node accepts at most %d of a pod", n, maxResources)}
	}
	return nil
}

func operatingSystem(pod *v1.Pod) *Rejection {
	if pod.Spec.OS != nil && pod.Spec.OS.Name != v1.Linux {
		return &Rejection{"PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"}
	}
	if want, ok := pod.Spec.NodeSelector[v1.LabelOSStable]; ok && want != string(v1.Linux) {
		return &Rejection{"PodOSSelectorNodeLabelDoesNotMatch", "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"}
	}
	return nil
}

// onNode rejects a pod by what the Node object says.
func onNode(pod *v1.Pod, node *v1.Node, features *feature.Set) *Rejection {
	if r := groupsPolicy(pod, node); r != nil {
		return r
	}
	return placement(pod, node, features)
}

// groupsPolicy rejects a pod whose processes may only have the groups that it lists, if
// the runtime would add those of the image (KEP-3619).
func groupsPolicy(pod *v1.Pod, node *v1.Node) *Rejection {
	sc, known := pod.Spec.SecurityContext, node.Status.Features
	if sc == nil || sc.SupplementalGroupsPolicy == nil || *sc.SupplementalGroupsPolicy != v1.SupplementalGroupsPolicyStrict {
		return nil
	}
	if known != nil && known.SupplementalGroupsPolicy != nil && *known.SupplementalGroupsPolicy {
		return nil
	}
	return &Rejection{"SupplementalGroupsPolicyNotSupported", "SupplementalGroupsPolicy=Strict is not supported in this node"}
}

func placement(pod *v1.Pod, node *v1.Node, features *feature.Set) *Rejection {
	matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	if err != nil || !matches {
		return &Rejection{"NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"}
	}
	onlyNoExecute := func(t *v1.Taint) bool { return t.Effect == v1.TaintEffectNoExecute }
	numeric := features.Enabled(feature.TaintTolerationComparisonOperators)
	if _, found := corev1helper.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, pod.Spec.Tolerations, onlyNoExecute, numeric); found {
		return &Rejection{"TaintToleration", "Predicate TaintToleration failed: node(s) had untolerated taints"}
	}
	return nil
}

// Pressure rejects pods under pressure, except critical ones. Under memory
// pressure alone it rejects only BestEffort pods that do not tolerate it.
func Pressure(pod *v1.Pod, class v1.PodQOSClass, conditions []v1.NodeConditionType) *Rejection {
	if len(conditions) == 0 || podquery.IsCritical(pod) {
		return nil
	}
	if len(conditions) == 1 && conditions[0] == v1.NodeMemoryPressure {
		taint := &v1.Taint{Key: v1.TaintNodeMemoryPressure, Effect: v1.TaintEffectNoSchedule} // without a value to compare
		if class != v1.PodQOSBestEffort || podquery.Tolerates(pod.Spec.Tolerations, taint, false) {
			return nil
		}
	}
	return &Rejection{"Evicted", fmt.Sprintf("The node had condition: %v. ", conditions)}
}

// ports rejects a pod with a host port of another pod. It admits one with a port
// that anything else on the node has, to which the proxy then leads nothing: its
// controller would only create another one.
func ports(pod *v1.Pod, others []*v1.Pod) *Rejection {
	var wanted podquery.HostPortSet
	for p := range podquery.HostPorts(&pod.Spec) {
		wanted.Add(p)
	}
	if wanted.Empty() {
		return nil
	}
	for _, other := range others {
		for taken := range podquery.HostPorts(&other.Spec) {
			if wanted.Conflicts(taken) {
				return &Rejection{"NodePorts", "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"}
			}
		}
	}
	return nil
}

// resources rejects a pod if the requests of all pods exceed the allocatable
// resources. The reason is outOf followed by the name of the resource.
func resources(pod *v1.Pod, others []*v1.Pod, allocatable v1.ResourceList, requests func([]*v1.Pod, ...v1.ResourceName) v1.ResourceList) *Rejection {
	short := shortages(pod, others, allocatable, requests)
	if len(short) == 0 {
		return nil
	}
	s := short[0]
	return &Rejection{outOf + string(s.name), fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", s.name, s.requested, s.used, s.capacity)}
}

// outOf is the beginning of the reason of a pod that lacks a resource.
const outOf = "OutOf"

// shortage is a resource of which a pod requests more than the node has left, of CPUs
// in thousandths.
type shortage struct {
	name                      v1.ResourceName
	requested, used, capacity int64
}

// shortages returns the resources that the pod lacks beside the others: pods first,
// then by name.
func shortages(pod *v1.Pod, others []*v1.Pod, allocatable v1.ResourceList, requests func([]*v1.Pod, ...v1.ResourceName) v1.ResourceList) (short []shortage) {
	if room := allocatable[v1.ResourcePods]; !room.IsZero() && int64(len(others)+1) > room.Value() {
		short = append(short, shortage{v1.ResourcePods, 1, int64(len(others)), room.Value()})
	}
	request := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	names := make([]v1.ResourceName, 0, len(allocatable))
	for name, want := range request {
		if _, known := allocatable[name]; known && !want.IsZero() && !claimed(pod, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	used := requests(others, names...)
	for _, name := range names {
		want, have, room := request[name], used[name], allocatable[name]
		sum := have.DeepCopy()
		sum.Add(want)
		if sum.Cmp(room) > 0 {
			short = append(short, shortage{name, counted(name, want), counted(name, have), counted(name, room)})
		}
	}
	return short
}

// claimed reports whether the pod has an extended resource by a claim (KEP-5004): it
// needs none of a device plugin.
func claimed(pod *v1.Pod, name v1.ResourceName) bool {
	status := pod.Status.ExtendedResourceClaimStatus
	return status != nil && slices.ContainsFunc(status.RequestMappings, func(m v1.ContainerExtendedResourceRequest) bool {
		return m.ResourceName == string(name)
	})
}

// TooBig returns why the pod would not fit on the node even if it ran alone, ""
// if it would.
func TooBig(pod *v1.Pod, allocatable v1.ResourceList) string {
	request := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	for _, name := range []v1.ResourceName{v1.ResourceMemory, v1.ResourceCPU} {
		if want, room := counted(name, request[name]), counted(name, allocatable[name]); want > room {
			return fmt.Sprintf("Node didn't have enough capacity: %s, requested: %d, capacity: %d", name, want, room)
		}
	}
	return ""
}

func counted(name v1.ResourceName, q resource.Quantity) int64 {
	if name == v1.ResourceCPU {
		return amount.Milli(q)
	}
	return amount.Value(q)
}

// AppArmorEnabled reports whether the kernel enforces AppArmor profiles. read
// reads a file.
func AppArmorEnabled(read func(path string) ([]byte, error)) bool {
	enabled, err := read("/sys/module/apparmor/parameters/enabled")
	return err == nil && strings.HasPrefix(string(enabled), "Y")
}

// safeSysctls are those whose effect ends at the pod.
func safeSysctls() []string {
	return []string{
		"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range",
		"net.ipv4.ip_unprivileged_port_start", "net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_keepalive_time",
		"net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem",
		"net.ipv4.tcp_slow_start_after_idle", "net.ipv4.tcp_notsent_lowat",
	}
}

// Sysctls rejects sysctls that are neither safe nor allowed on the node. An
// allowed pattern that ends with * matches a prefix.
func Sysctls(pod *v1.Pod, allowed []string) *Rejection {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	for _, s := range pod.Spec.SecurityContext.Sysctls {
		name := strings.ReplaceAll(s.Name, "/", ".")
		fine := slices.Contains(safeSysctls(), name) || slices.ContainsFunc(allowed, func(pattern string) bool {
			prefix, any := strings.CutSuffix(pattern, "*")
			return pattern == name || any && strings.HasPrefix(name, prefix)
		})
		namespaced := strings.HasPrefix(name, "net.") && !pod.Spec.HostNetwork || !strings.HasPrefix(name, "net.") && !pod.Spec.HostIPC
		if !fine || !namespaced {
			return &Rejection{"SysctlForbidden", fmt.Sprintf("forbidden sysctl: %q not allowlisted", s.Name)}
		}
	}
	return nil
}
