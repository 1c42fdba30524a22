// Package admit decides whether a node takes a pod that was bound to it. It
// stands for upstream's admit handlers (package lifecycle).
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
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	podutil "github.com/coracle-io/coracle/internal/pod"
)

// Rejection is why a pod is refused: what its status will say.
type Rejection struct{ Reason, Message string }

// Policy is what a node takes.
type Policy struct {
	AllowedSysctls []string
	AppArmor       bool                          // the kernel enforces its profiles
	Pressure       func() []v1.NodeConditionType // what the node is short of
	Node           func() *v1.Node               // nil before there is one
	Allocatable    func() v1.ResourceList
}

// Admit returns why the node refuses the pod beside those that run; nil if it
// takes it.
func (p *Policy) Admit(pod *v1.Pod, running []*v1.Pod) *Rejection {
	if r := Sysctls(pod, p.AllowedSysctls); r != nil {
		return r
	}
	if spec.NeedsAppArmor(pod) && !p.AppArmor {
		return &Rejection{"AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host"}
	}
	if r := Pressure(pod, podutil.QOSClass(pod), p.Pressure()); r != nil {
		return r
	}
	return Check(pod, p.Node(), running, p.Allocatable())
}

// Check decides about a pod against the pods that the node already runs. A
// nil node object skips the rules that need its labels and taints.
func Check(pod *v1.Pod, node *v1.Node, others []*v1.Pod, allocatable v1.ResourceList) *Rejection {
	if r := operatingSystem(pod); r != nil {
		return r
	}
	if node != nil {
		if r := placement(pod, node); r != nil {
			return r
		}
	}
	if r := ports(pod, others); r != nil {
		return r
	}
	return resources(pod, others, allocatable)
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

func placement(pod *v1.Pod, node *v1.Node) *Rejection {
	matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	if err != nil || !matches {
		return &Rejection{"NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"}
	}
	onlyNoExecute := func(t *v1.Taint) bool { return t.Effect == v1.TaintEffectNoExecute }
	if _, found := corev1helper.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, pod.Spec.Tolerations, onlyNoExecute, false); found {
		return &Rejection{"TaintToleration", "Predicate TaintToleration failed: node(s) had untolerated taints"}
	}
	return nil
}

// Pressure refuses pods while the node is short of something: all of them but
// critical ones, and for memory only those that requested none of anything
// and do not tolerate it.
func Pressure(pod *v1.Pod, class v1.PodQOSClass, conditions []v1.NodeConditionType) *Rejection {
	if len(conditions) == 0 || podutil.IsCritical(pod) {
		return nil
	}
	if len(conditions) == 1 && conditions[0] == v1.NodeMemoryPressure {
		taint := []v1.Taint{{Key: v1.TaintNodeMemoryPressure, Effect: v1.TaintEffectNoSchedule}}
		all := func(*v1.Taint) bool { return true }
		_, untolerated := corev1helper.FindMatchingUntoleratedTaint(klog.Background(), taint, pod.Spec.Tolerations, all, false)
		if class != v1.PodQOSBestEffort || !untolerated {
			return nil
		}
	}
	return &Rejection{"Evicted", fmt.Sprintf("The node had condition: %v. ", conditions)}
}

type hostPort struct {
	ip       string
	protocol v1.Protocol
	port     int32
}

func hostPorts(pod *v1.Pod) []hostPort {
	var out []hostPort
	for i := range pod.Spec.Containers {
		for _, p := range pod.Spec.Containers[i].Ports {
			if p.HostPort == 0 {
				continue
			}
			ip := p.HostIP
			if ip == "" {
				ip = "0.0.0.0"
			}
			protocol := p.Protocol
			if protocol == "" {
				protocol = v1.ProtocolTCP
			}
			out = append(out, hostPort{ip, protocol, p.HostPort})
		}
	}
	return out
}

// ReservedPorts are the host ports of a pod on which the cluster itself serves,
// and which the proxy therefore leaves out. The pod runs all the same: its
// owner would make another one, which would come here again. Pods in the node's
// own network only say what they listen on.
func ReservedPorts(pod *v1.Pod, reserved []int) []int32 {
	if pod.Spec.HostNetwork {
		return nil
	}
	var ports []int32
	for _, wanted := range hostPorts(pod) {
		if slices.Contains(reserved, int(wanted.port)) {
			ports = append(ports, wanted.port)
		}
	}
	return ports
}

func ports(pod *v1.Pod, others []*v1.Pod) *Rejection {
	wanted := hostPorts(pod)
	if len(wanted) == 0 {
		return nil
	}
	for _, other := range others {
		for _, taken := range hostPorts(other) {
			clash := slices.ContainsFunc(wanted, func(w hostPort) bool {
				return w.port == taken.port && w.protocol == taken.protocol && (w.ip == taken.ip || w.ip == "0.0.0.0" || taken.ip == "0.0.0.0")
			})
			if clash {
				return &Rejection{"NodePorts", "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"}
			}
		}
	}
	return nil
}

// resources adds up requests. The reason is OutOf and the resource's name.
func resources(pod *v1.Pod, others []*v1.Pod, allocatable v1.ResourceList) *Rejection {
	if room := allocatable[v1.ResourcePods]; !room.IsZero() && int64(len(others)+1) > room.Value() {
		return outOf(v1.ResourcePods, 1, int64(len(others)), room.Value())
	}
	request := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	used := Requests(others)
	names := make([]string, 0, len(request))
	for name := range request {
		names = append(names, string(name))
	}
	slices.Sort(names)
	for _, n := range names {
		name := v1.ResourceName(n)
		want, have := request[name], used[name]
		room, known := allocatable[name]
		if want.IsZero() || !known {
			continue
		}
		sum := have.DeepCopy()
		sum.Add(want)
		if sum.Cmp(room) > 0 {
			return outOf(name, counted(name, want), counted(name, have), counted(name, room))
		}
	}
	return nil
}

// TooBig says why the node could not hold the pod even if it ran alone there,
// "" if it could.
func TooBig(pod *v1.Pod, allocatable v1.ResourceList) string {
	request := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	for _, name := range []v1.ResourceName{v1.ResourceMemory, v1.ResourceCPU} {
		if want, room := counted(name, request[name]), counted(name, allocatable[name]); want > room {
			return fmt.Sprintf("Node didn't have enough capacity: %s, requested: %d, capacity: %d", name, want, room)
		}
	}
	return ""
}

// Requests adds up what the pods ask for.
func Requests(pods []*v1.Pod) v1.ResourceList {
	total := v1.ResourceList{}
	for _, pod := range pods {
		for name, q := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{UseStatusResources: true}) {
			sum := total[name]
			sum.Add(q)
			total[name] = sum
		}
	}
	return total
}

func counted(name v1.ResourceName, q resource.Quantity) int64 {
	if name == v1.ResourceCPU {
		return amount.Milli(q)
	}
	return amount.Value(q)
}

func outOf(name v1.ResourceName, requested, used, capacity int64) *Rejection {
	return &Rejection{"OutOf" + string(name), fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", name, requested, used, capacity)}
}

// AppArmorEnabled says whether the kernel enforces profiles. read reads a file.
func AppArmorEnabled(read func(path string) ([]byte, error)) bool {
	enabled, err := read("/sys/module/apparmor/parameters/enabled")
	return err == nil && strings.HasPrefix(string(enabled), "Y")
}

// safeSysctls are those whose effect ends at the pod.
var safeSysctls = []string{
	"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range",
	"net.ipv4.ip_unprivileged_port_start", "net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_keepalive_time",
	"net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem",
}

// Sysctls refuses sysctls that are neither safe nor allowed on the node. A
// pattern of allowed ends with * to allow all that begin so.
func Sysctls(pod *v1.Pod, allowed []string) *Rejection {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	for _, s := range pod.Spec.SecurityContext.Sysctls {
		name := strings.ReplaceAll(s.Name, "/", ".")
		fine := slices.Contains(safeSysctls, name) || slices.ContainsFunc(allowed, func(pattern string) bool {
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
