package proxy

import (
	"net/netip"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/podquery"
)

// podHostPorts returns the host ports of a pod and the pod addresses behind
// them. A pod in the host's network needs no rules for its ports. A pod that
// has ended or has no address has none.
func podHostPorts(pod *v1.Pod) map[HostPortKey]netip.AddrPort {
	result := map[HostPortKey]netip.AddrPort{}
	if pod.Spec.HostNetwork || podquery.IsFinished(pod) {
		return result
	}
	for _, ip := range pod.Status.PodIPs {
		a, err := netip.ParseAddr(ip.IP)
		if err != nil {
			continue
		}
		for container := range podquery.Containers(&pod.Spec) {
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
