package proxy

import (
	"net/netip"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/podquery"
)

// podHostPorts returns the host ports of a pod for which it needs rules, and the
// pod addresses behind them. A pod in the host's network needs none. A pod that
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
		for host, port := range podquery.HostPorts(&pod.Spec) {
			if host.Address.IsValid() && host.Address.Is4() != a.Is4() {
				continue
			}
			key := HostPortKey{Address: host.Address, Port: uint16(host.Port), Protocol: host.Protocol, Family: familyOf(a)}
			result[key] = netip.AddrPortFrom(a, uint16(port.ContainerPort))
		}
	}
	return result
}
