// Package spec converts a pod's specification to the configuration of the
// container runtime: sandbox and container configurations, environment, DNS,
// hosts file, security and resource controls. It is pure: it gets objects of the
// cluster as values or through small lookup interfaces. It stands for the
// configuration generators of upstream's kuberuntime manager.
package spec

import (
	"fmt"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/node/util/sysctl"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/nodeaddress"
	"github.com/coracle-io/coracle/internal/podquery"
)

// Node has the properties of the node that the configurations of pods depend on.
type Node struct {
	Configuration  *kubeletconfig.KubeletConfiguration // with defaults
	IPs            *nodeaddress.List                   // its addresses, primary first, which may change
	RootDirectory  string                              // of the kubelet
	ResolvConf     []byte                              // of the host, as it is now; used by Sandbox only
	MemoryCapacity int64
	MemoryForPods  int64    // of the capacity, what is not reserved for the system
	SwapCapacity   *int64   // of the machine, in bytes; nil: its use cannot be limited
	HugePages      []string // the sizes that the machine has, as HugePageSizes returns them
	// ThermalThrottle has the folders that say how hot CPUs got, which containers do
	// not see: from that, one could tell what others compute.
	ThermalThrottle []string
}

// PodName returns the name of a pod in messages: name_namespace(uid).
func PodName(pod *v1.Pod) string {
	return fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID)
}

// PodLogDirectory returns the directory of a pod's container logs.
func PodLogDirectory(root, namespace, name, uid string) string {
	return filepath.Join(root, namespace+"_"+name+"_"+uid)
}

// LogLinkDirectory returns the directory of the links to the logs of containers, beside
// that of the logs of all pods, root. With its default that is /var/log/containers,
// where collectors of logs look.
func LogLinkDirectory(root string) string { return filepath.Join(filepath.Dir(root), "containers") }

// maxFileName is the length of a file name, in bytes: NAME_MAX.
const maxFileName = 255

// LogLink returns the link to the log of a container with an id of the runtime:
// POD_NAMESPACE_CONTAINER-ID.log, whose beginning is cut if it is too long.
func LogLink(root string, pod *v1.Pod, container, id string) string {
	name, suffix := pod.Name+"_"+pod.Namespace+"_"+container, "-"+filepath.Base(id)+".log"
	return filepath.Join(LogLinkDirectory(root), name[:min(len(name), max(maxFileName-len(suffix), 0))]+suffix)
}

// containerLogPath returns the path of a container's log, relative to the log
// directory of its pod.
func containerLogPath(name string, restartCount int) string {
	return filepath.Join(name, fmt.Sprintf("%d.log", restartCount))
}

const maxHostname = 63

// HostName returns the pod's hostname and, if it has one, its domain.
func HostName(pod *v1.Pod, clusterDomain string) (hostname, domain string, err error) {
	if pod.Spec.HostnameOverride != nil {
		return *pod.Spec.HostnameOverride, "", nil
	}
	hostname = pod.Name
	if pod.Spec.Hostname != "" {
		hostname = pod.Spec.Hostname
	}
	if len(hostname) > maxHostname {
		hostname = strings.TrimRight(hostname[:maxHostname], "-.")
	}
	if hostname == "" {
		return "", "", fmt.Errorf("hostname from pod name %q is empty", pod.Name)
	}
	if pod.Spec.Subdomain != "" {
		domain = fmt.Sprintf("%s.%s.svc.%s", pod.Spec.Subdomain, pod.Namespace, clusterDomain)
	}
	return hostname, domain, nil
}

// Sandbox returns the configuration of a pod's sandbox. cgroupParent is "" if
// pods have no cgroups of their own.
func Sandbox(pod *v1.Pod, node *Node, attempt uint32, cgroupParent string, userNamespace *runtimeapi.UserNamespace) (*runtimeapi.PodSandboxConfig, error) {
	resolver, _ := dns(pod, node)
	config := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID), Attempt: attempt},
		LogDirectory: PodLogDirectory(node.Configuration.PodLogsDir, pod.Namespace, pod.Name, string(pod.UID)),
		Labels:       cri.PodLabels(pod),
		Annotations:  cri.SandboxAnnotations(pod, node.RootDirectory),
		DnsConfig:    resolver,
	}
	if !pod.Spec.HostNetwork {
		hostname, domain, err := HostName(pod, node.Configuration.ClusterDomain)
		if err != nil {
			return nil, err
		}
		if pod.Spec.SetHostnameAsFQDN != nil && *pod.Spec.SetHostnameAsFQDN && domain != "" {
			hostname = hostname + "." + domain
			if len(hostname) > 64 {
				return nil, fmt.Errorf("failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long (64 characters is the max, %d characters requested)", hostname, len(hostname))
			}
		}
		config.Hostname = hostname
		config.PortMappings = portMappings(pod)
	} else if pod.Spec.HostnameOverride != nil {
		config.Hostname = *pod.Spec.HostnameOverride
	}
	resources, overhead := sandboxResources(pod, node.Configuration)
	config.Linux = &runtimeapi.LinuxPodSandboxConfig{
		CgroupParent: cgroupParent,
		SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: namespaces(pod, "", userNamespace),
			Privileged:       privileged(pod),
			Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
		},
		Sysctls:   defaultSysctls(pod, node.Configuration.DefaultPodSysctls),
		Resources: resources,
		Overhead:  overhead,
	}
	if sc := pod.Spec.SecurityContext; sc != nil {
		out := config.Linux.SecurityContext
		for _, s := range sc.Sysctls { // runtimes look for names with dots
			config.Linux.Sysctls[sysctl.NormalizeName(s.Name)] = s.Value
		}
		if sc.RunAsUser != nil {
			out.RunAsUser = &runtimeapi.Int64Value{Value: *sc.RunAsUser}
		}
		if sc.RunAsGroup != nil {
			out.RunAsGroup = &runtimeapi.Int64Value{Value: *sc.RunAsGroup}
		}
		if sc.FSGroup != nil {
			out.SupplementalGroups = append(out.SupplementalGroups, *sc.FSGroup)
		}
		out.SupplementalGroups = append(out.SupplementalGroups, sc.SupplementalGroups...)
		if sc.SupplementalGroupsPolicy != nil && *sc.SupplementalGroupsPolicy == v1.SupplementalGroupsPolicyStrict {
			out.SupplementalGroupsPolicy = runtimeapi.SupplementalGroupsPolicy_Strict
		}
		out.SelinuxOptions = seLinux(sc.SELinuxOptions)
	}
	return config, nil
}

// defaultSysctls returns the node's sysctls for pods, by names with dots, of the namespaces
// that a pod does not share with the host (defaultPodSysctls).
func defaultSysctls(pod *v1.Pod, defaults map[string]string) map[string]string {
	out := map[string]string{}
	for name, value := range defaults {
		shared := false
		switch namespace, _, _ := sysctl.GetNamespace(name); namespace {
		case sysctl.NetNamespace, sysctl.UTSNamespace: // with the host's network a pod has its names, too
			shared = pod.Spec.HostNetwork
		case sysctl.IPCNamespace:
			shared = pod.Spec.HostIPC
		case sysctl.UserNamespace:
			shared = pod.Spec.HostUsers == nil || *pod.Spec.HostUsers
		}
		if !shared {
			out[sysctl.NormalizeName(name)] = value
		}
	}
	return out
}

func privileged(pod *v1.Pod) bool {
	for c := range podquery.AllContainers(&pod.Spec) {
		if sc := c.SecurityContext; sc != nil && sc.Privileged != nil && *sc.Privileged {
			return true
		}
	}
	return false
}

// portMappings returns the host ports of a pod, for a runtime that leads them.
func portMappings(pod *v1.Pod) []*runtimeapi.PortMapping {
	var out []*runtimeapi.PortMapping
	for host, port := range podquery.HostPorts(&pod.Spec) {
		protocol := runtimeapi.Protocol_TCP
		switch host.Protocol {
		case v1.ProtocolUDP:
			protocol = runtimeapi.Protocol_UDP
		case v1.ProtocolSCTP:
			protocol = runtimeapi.Protocol_SCTP
		}
		mapping := &runtimeapi.PortMapping{HostPort: host.Port, ContainerPort: port.ContainerPort, Protocol: protocol}
		if host.Address.IsValid() {
			mapping.HostIp = host.Address.String()
		}
		out = append(out, mapping)
	}
	return out
}

// namespaces returns which namespaces the containers share. target is the
// container whose process namespace an ephemeral container joins.
func namespaces(pod *v1.Pod, target string, userNamespace *runtimeapi.UserNamespace) *runtimeapi.NamespaceOption {
	o := &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER, UsernsOptions: userNamespace}
	if pod.Spec.HostNetwork {
		o.Network = runtimeapi.NamespaceMode_NODE
	}
	if pod.Spec.HostIPC {
		o.Ipc = runtimeapi.NamespaceMode_NODE
	}
	switch {
	case pod.Spec.HostPID:
		o.Pid = runtimeapi.NamespaceMode_NODE
	case target != "":
		o.Pid, o.TargetId = runtimeapi.NamespaceMode_TARGET, target
	case pod.Spec.ShareProcessNamespace != nil && *pod.Spec.ShareProcessNamespace:
		o.Pid = runtimeapi.NamespaceMode_POD
	}
	return o
}
