package proxy

import (
	"net/netip"

	v1 "k8s.io/api/core/v1"

	podutil "github.com/coracle-io/coracle/internal/pod"
)

// PodHostPorts lists the host ports of one pod of this node and where they
// lead. A pod in the host's network has its ports there without any rule, and
// one that has ended or has no address yet has none.
func PodHostPorts(pod *v1.Pod) map[HostPortKey]netip.AddrPort {
	result := map[HostPortKey]netip.AddrPort{}
	if pod.Spec.HostNetwork || podutil.IsFinished(pod) {
		return result
	}
	for _, ip := range pod.Status.PodIPs {
		a, err := netip.ParseAddr(ip.IP)
		if err != nil {
			continue
		}
		for container := range podutil.Containers(&pod.Spec) {
			for _, port := range container.Ports {
				if port.HostPort == 0 {
					continue
				}
				key := HostPortKey{Port: uint16(port.HostPort), Protocol: protocolOf(port.Protocol), Family: familyOf(a)}
				if host, err := netip.ParseAddr(port.HostIP); err == nil && !host.IsUnspecified() {
					if host.Is4() != a.Is4() {
						continue
					}
					key.Address = host
				}
				result[key] = netip.AddrPortFrom(a, uint16(port.ContainerPort))
			}
		}
	}
	return result
}
